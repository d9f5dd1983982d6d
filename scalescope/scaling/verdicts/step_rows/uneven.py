"""Steady steps that are longer in one part of a run than in another: other processes came, or the job changed.

The median of all is known by the medians of stretches. Where these leave a tenth of it open, it is the length of no
step in particular, and a window's few may be like some of the steps and unlike others.
"""

import statistics
from collections.abc import Sequence

from scalescope.records.rows import StepRow
from scalescope.records.steps.core_waits import waited_ms
from scalescope.records.steps.unevenness import STRETCHES, UNLIKE, half_of_median
from scalescope.scaling.answer_steps import SteadyStretch, UnevenSteps

#: Of shorter stretches the median is one step's chance.
_LEAST_STRETCH = 4


def uneven_steps(steady: Sequence[StepRow]) -> UnevenSteps | None:
    """Return the stretches of steady steps, in order, that are longest and shortest; None where all are about alike."""
    each = len(steady) // STRETCHES
    if each < _LEAST_STRETCH:
        return None
    lengths = [row.length_ms for row in steady]
    if half_of_median(lengths) < UNLIKE * statistics.median(lengths):
        return None
    parts = [_stretch(steady[at * each : (at + 1) * each]) for at in range(STRETCHES)]
    return UnevenSteps(longest=max(parts, key=lambda one: one.ms), shortest=min(parts, key=lambda one: one.ms))


def _stretch(rows: Sequence[StepRow]) -> SteadyStretch:
    waits = [ms for row in rows if (ms := waited_ms(row)) is not None]
    return SteadyStretch(
        first=rows[0].step,
        last=rows[-1].step,
        ms=statistics.median(row.length_ms for row in rows),
        run_delay_ms=statistics.fmean(waits) if len(waits) == len(rows) else None,
    )
