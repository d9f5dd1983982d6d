"""What a projection is made from: the runs of one series that have both traces and measured steps."""

from dataclasses import dataclass

from scalescope.scaling.costs.model import NotKnown
from scalescope.scaling.rank.exchanges import RankExchanges
from scalescope.scaling.verdicts.waterfall import MeanStep

#: Ranks whose steps are replayed; more say nothing else.
_REPLAYED = 16


@dataclass(frozen=True)
class MeasuredRun:
    """One run at one rank count."""

    name: str
    world_size: int
    device: str | None
    on_cpus: bool
    step_ms: float  # median of the steps outside the profiler's window
    repeat_half_ms: float  # half of the 95% interval of one more run; NaN where too few steps were measured
    samples_per_rank_step: int
    mean: MeanStep  # of the traces
    exchanges: dict[int, RankExchanges]
    ranks_per_replica: int = 1

    def replayed(self) -> list[RankExchanges]:
        """Return the ranks whose steps are replayed: of many, some spread over all."""
        ranks = [self.exchanges[rank] for rank in sorted(self.exchanges)]
        return ranks[:: max(1, -(-len(ranks) // _REPLAYED))]


@dataclass(frozen=True)
class Basis:
    """The runs that a projection may know, ascending by rank count: two counts or more."""

    series: str
    scaling: str  # weak | strong
    runs: list[MeasuredRun]

    @property
    def smallest(self) -> MeasuredRun:
        return self.runs[0]

    @property
    def largest(self) -> MeasuredRun:
        return self.runs[-1]


def check(basis: Basis) -> None:
    """Raise NotKnown where the runs cannot carry a projection."""
    counts = sorted({run.world_size for run in basis.runs})
    if len(counts) < 2:
        known = f"{counts[0]} GPU{'' if counts[0] == 1 else 's'}" if counts else "no count"
        raise NotKnown(
            f"only {known} has both traces and steps outside the profiler's window: what more ranks cost shows between "
            "two counts at least (scalescope study gpu_counts=[1,2])"
        )
    together = sorted({run.ranks_per_replica for run in basis.runs})
    if len(together) > 1:
        raise NotKnown(
            f"a replica has {' or '.join(map(str, together))} ranks, as the count asks: with more of them each has "
            "another part of every step, which smaller counts do not tell"
        )
    if not any(one.exchanges for one in basis.largest.exchanges.values()):
        raise NotKnown(f"{basis.largest.name} has no collective in its traces")
