"""What a run's step time would differ by if it were run again: from how its own steps drift."""

import math
import statistics
from collections.abc import Sequence

_BATCHES = 5
#: Student's t, two-sided 95%, for five batches.
_T95 = 2.776


def repeat_half_ms(step_ms: Sequence[float]) -> float:
    """Return half of the 95% interval of the difference between a run's mean step and that of one more run.

    By batch means: neighbouring steps are alike (clocks, power), so their scatter alone would say too little.
    """
    size = len(step_ms) // _BATCHES
    if size < 2:
        return math.nan
    batches = [statistics.fmean(step_ms[at * size : (at + 1) * size]) for at in range(_BATCHES)]
    return _T95 * math.sqrt(2) * statistics.stdev(batches) / math.sqrt(_BATCHES)
