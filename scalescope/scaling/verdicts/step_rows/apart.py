"""How much of what steps differ by is what their ranks wait for cores: by rows, profiled steps among them.

A step in which ranks wait for each other is as much longer as the rank that waits most for its core. So steps without
those waits are alike where these are why they differ, and differ as before where something else is.
"""

import statistics
from collections.abc import Sequence

from scalescope.records.rows import StepRow
from scalescope.records.steps.core_waits import waited_ms
from scalescope.scaling.answer_steps import StepsApart

#: Of fewer steps nothing is told.
_LEAST = 8


def steps_apart(rows: Sequence[StepRow]) -> StepsApart | None:
    """Return what of the variance of these steps is gone without their waits for cores; None where not all tell it."""
    timed = [row for row in rows if row.step_ms]
    waits = [waited for row in timed if row.synchronised and (waited := waited_ms(row)) is not None]
    if len(waits) < max(_LEAST, len(timed)):
        return None
    lengths = [row.length_ms for row in timed]
    apart = statistics.pvariance(lengths)
    if apart <= 0:
        return None
    left = statistics.pvariance([length - wait for length, wait in zip(lengths, waits, strict=True)])
    return StepsApart(by_core_waits=max(0.0, 1 - left / apart), waits_ms=statistics.fmean(waits), steps=len(waits))
