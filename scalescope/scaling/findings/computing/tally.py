"""What activities of all ranks take and how often they come, by name: the evidence of what all ranks compute alike."""

from collections.abc import Collection, Mapping
from typing import Literal

from scalescope.scaling.finding.finding import EvidenceRow
from scalescope.scaling.replay.graph import Activity

#: So many names are told, if each takes this share of all of it.
_NAMED, _WORTH_NAMING = 3, 0.1


class Tally:
    """Activities added up by name, a step of the mean rank."""

    def __init__(self, ranks: Collection[int], steps: Collection[int]) -> None:
        self._scale = max(1, len(ranks) * len(steps))
        self._ms: dict[str, float] = {}
        self._calls: dict[str, float] = {}

    def add(self, name: str, node: Activity) -> float:
        """Take an activity under a name; return what it takes, ms."""
        took_ms = (node.traced_end - node.traced_start) / 1e6
        self._ms[name] = self._ms.get(name, 0.0) + took_ms / self._scale
        self._calls[name] = self._calls.get(name, 0.0) + 1 / self._scale
        return took_ms

    def rows(self, figure: str, kind: Literal["activity", "operator"]) -> tuple[EvidenceRow, ...]:
        """Return all of it as a figure, and the names that take most of it."""
        whole = sum(self._ms.values())
        most = sorted(self._ms, key=lambda name: -self._ms[name])[:_NAMED]
        return (
            EvidenceRow(kind="figure", name=figure, ms=whole, calls=sum(self._calls.values())),
            *(
                EvidenceRow(kind=kind, name=name, ms=self._ms[name], calls=self._calls[name])
                for name in most
                if self._ms[name] >= _WORTH_NAMING * whole
            ),
        )


def of_last_rank_ms(taken_ns: Mapping[tuple[int, int], float], steps: int) -> float:
    """Return what ranks take of a step, ms of the mean one, by (step, rank) in ns: each step waits for its last rank,
    for each in turn where others take the cores of one, and then of the other.
    """
    longest: dict[int, float] = {}
    for (step, _), ns in taken_ns.items():
        longest[step] = max(longest.get(step, 0.0), ns)
    return sum(longest.values()) / max(1, steps) / 1e6
