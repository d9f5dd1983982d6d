"""How much later than all others each rank is by itself in all of a job's steps, whatever held it up."""

import statistics
from collections.abc import Sequence

from scalescope.records.rows import StepRow
from scalescope.scaling.answer_steps import RankInSteps
from scalescope.scaling.verdicts.step_rows.late import LEAST_STEPS, half_by_stretches, later_ms

#: Until it first waits for the others a rank does so much of its step at least, or that part tells nothing of the rest.
_MOST_OF_IT = 0.6


def ranks_in_steps(steady: Sequence[StepRow]) -> list[RankInSteps]:
    """Return how much later each rank is in steady steps, in order; none of those whose own time tells too little.

    What others have its core for counts: cores that are taken by turns are why a rank may compute for longer. What
    comes behind the first wait is taken to be as much longer as what comes before it.
    """
    marked = [row for row in steady if len(row.own_ms) > 1 and row.synchronised]
    if len(marked) < LEAST_STEPS:
        return []
    mean_step_ms = statistics.fmean(row.length_ms for row in marked)
    found = []
    for rank in range(min(len(row.own_ms) for row in marked)):
        own_ms = statistics.fmean(row.own_ms[rank] for row in marked)
        if own_ms < _MOST_OF_IT * mean_step_ms:
            continue
        later = [later_ms(row.own_ms, rank) for row in marked]
        whole = max(1.0, mean_step_ms / own_ms)
        mean, half = whole * statistics.fmean(later), whole * half_by_stretches(later)
        found.append(RankInSteps(rank=rank, later_ms=mean, low_ms=mean - half, high_ms=mean + half, steps=len(marked)))
    return found
