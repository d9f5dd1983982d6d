"""How long the job's own steps are, of the times of its ranks.

Where ranks wait for one another, no step is shorter than its slowest rank's. But what a rank does last in a step, after
it has exchanged its gradients, the others wait for in their next one: the same time is in two rows, in one of each
rank. A job that does so in every third step would have two long ones of three by its slowest ranks, and a mean step
1.5 times as long as it is. So a step lasts from when the last rank has ended the one before until the last rank has
ended it: over many steps that adds up to what the job took.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec

from scalescope.records.rows import StepRow, step_length_ms

#: What a row says in proportion to how quick its step was.
RATES = ("samples_per_s", "tokens_per_s", "mfu", "mfu_of_measured", "hfu", "hfu_of_measured")


class JobSteps:
    """Steps in a row, as they come."""

    def __init__(self) -> None:
        self._ahead: list[
            float
        ] = []  # ms by rank: since when it is in the next step, when the last rank begins it; <= 0
        self._step = -1

    def take(self, step: int, step_ms: Sequence[float], *, synchronised: bool = True) -> float:
        """Return how long a step of ranks with these times is, ms.

        What follows no step, or one of other ranks, begins for all ranks at once. Raises ValueError where there is no
        time.
        """
        follows = step == self._step + 1 and len(step_ms) == len(self._ahead)
        self._step = step
        if not synchronised or not all(map(math.isfinite, step_ms)):
            self._ahead = []
            return step_length_ms(step_ms, synchronised)
        ends = [ms + (self._ahead[rank] if follows else 0.0) for rank, ms in enumerate(step_ms)]
        last = max(ends)
        self._ahead = [end - last for end in ends]
        return last


def with_job_steps(rows: Iterable[StepRow]) -> list[StepRow]:
    """Return rows in order with how long each step is, and its rates by that, where they were written without."""
    steps, found = JobSteps(), []
    for row in rows:
        if not row.step_ms:
            found.append(row)
            continue
        ms = steps.take(row.step, row.step_ms, synchronised=row.synchronised)
        found.append(row if row.job_step_ms is not None or not ms > 0 else _as_long(row, ms))
    return found


def _as_long(row: StepRow, ms: float) -> StepRow:
    faster = row.length_ms / ms
    rates = {name: rate * faster for name in RATES if (rate := getattr(row, name)) is not None}
    joules = None if row.joules_per_sample is None else row.joules_per_sample / faster
    return msgspec.structs.replace(row, job_step_ms=ms, joules_per_sample=joules, **rates)
