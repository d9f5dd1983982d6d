"""What a run's step time would differ by if it were run again: from how its own steps drift."""

import math
import statistics
from collections.abc import Sequence

from scalescope.records.statistics import student_95

_BATCHES = 5


def repeat_half_ms(step_ms: Sequence[float]) -> float:
    """Return half of the 95% interval of the difference between a run's mean step and that of one more run.

    By batch means: neighbouring steps are alike (clocks, power), so their scatter alone would say too little.
    """
    size = len(step_ms) // _BATCHES
    if size < 2:
        return math.nan
    batches = [statistics.fmean(step_ms[at * size : (at + 1) * size]) for at in range(_BATCHES)]
    return student_95(_BATCHES - 1) * math.sqrt(2) * statistics.stdev(batches) / math.sqrt(_BATCHES)
