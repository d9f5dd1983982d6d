"""What to do about a compiled graph that is cut at gradient buckets: cut it at fewer places, or nowhere."""

from dataclasses import dataclass

from scalescope.records.rows import Origin
from scalescope.scaling.finding.finding import Remedy

_LARGE_MIB = 100


@dataclass(frozen=True)
class _Loop:
    origin: Origin | None

    def overrides(self, *keys: str) -> tuple[str, ...]:
        """Return keys for a job of ours; none for anybody else's loop."""
        return keys if self.origin == "job" else ()


def remedies_of_cuts(origin: Origin | None) -> tuple[Remedy, Remedy]:
    """Return what cuts the graph of a loop, by who wrote it, at fewer places, and what leaves it whole."""
    loop = _Loop(origin)
    fewer = loop.overrides(f"strategy.bucket_mib={_LARGE_MIB}")
    none = loop.overrides("strategy.compile_by_bucket=false")
    return (
        Remedy(cure="fewer_cuts", overrides=fewer, size=_LARGE_MIB, compiled=True, origin=origin),
        Remedy(cure="no_cuts", overrides=none, compiled=True, origin=origin),
    )
