"""How long hosts are in their loaders in a job's own steps: what loading costs is no more, whatever a window met."""

import statistics
from collections.abc import Sequence

from scalescope.records.rows import StepRow
from scalescope.records.statistics import half_of_mean
from scalescope.scaling.answer_steps import LoadingInSteps

#: Of fewer steps nothing is told.
_LEAST = 8


def loading_in_steps(steady: Sequence[StepRow], rows: Sequence[StepRow]) -> LoadingInSteps | None:
    """Return it of steady steps; None where one of them does not tell it of all ranks.

    `rows`: of the profiled steps among them, too.
    """
    ranks = {len(row.loading_ms) for row in steady}
    if len(steady) < _LEAST or len(ranks) > 1 or not all(_tells(row) for row in steady):
        return None
    longest, shortest = [max(row.loading_ms) for row in steady], [min(row.loading_ms) for row in steady]
    profiled = [row for row in rows if row.phase == "profile"]
    told = all(_tells(row) and len(row.loading_ms) in ranks for row in profiled)
    return LoadingInSteps(
        by_rank_ms=_by_rank(steady),
        longest_ms=statistics.fmean(longest),
        longest_high_ms=statistics.fmean(longest) + half_of_mean(longest),
        shortest_ms=statistics.fmean(shortest),
        shortest_low_ms=max(0.0, statistics.fmean(shortest) - half_of_mean(shortest)),
        mean_step_ms=statistics.fmean(row.length_ms for row in steady),
        steps=len(steady),
        profiled_ms=_by_rank(profiled) if profiled and told else [],
    )


def _tells(row: StepRow) -> bool:
    return len(row.loading_ms) == len(row.step_ms) > 0


def _by_rank(rows: Sequence[StepRow]) -> list[float]:
    return [statistics.fmean(own) for own in zip(*(row.loading_ms for row in rows), strict=True)]
