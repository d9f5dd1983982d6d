"""How a few steps differ from the others, beside how much steps differ by themselves: a placebo.

Measuring and reading compare profiled steps with steady ones by this one statistic, so that no two lines of one run
contradict each other.
"""

import math
import statistics
from collections.abc import Sequence

import msgspec

from scalescope.records.statistics import half_of_mean, student_95

#: Of fewer steady steps nobody can tell how they differ.
_LEAST_STEPS = 5
#: Profiled steps that are shorter by no more than this share are as long as the others.
_SHORTER = 0.01
#: Profiled steps that differ by more from the measured ones are not like them.
UNLIKE = 0.1
#: Of the job's own step: by so much fresh pages make profiled ones longer on CPUs, at most (7 to 15% were seen).
BY_FRESH_PAGES = 0.2
#: Of so many stretches the medians tell how far that of all steps is known.
STRETCHES = 6
#: A median's standard error over a mean's, of steps that are normally distributed.
_MEDIAN_OVER_MEAN = math.sqrt(math.pi / 2)


class StepExcess(msgspec.Struct, frozen=True):
    """The median of some steps less the median of the steady ones, ms."""

    steady_ms: float
    ms: float
    placebo_ms: float | None  # as many steady steps in a row differ by so much, 95 times of 100; None: too few to tell

    @property
    def fraction(self) -> float:
        """Of the steady step."""
        return self.ms / self.steady_ms if self.steady_ms else 0.0

    @property
    def unsteady(self) -> bool:
        """Whether the machine makes the difference, and not what was done in these steps alone: see `is_unsteady`."""
        return is_unsteady(self.ms, self.steady_ms, self.placebo_ms)


def is_unsteady(ms: float, steady_ms: float, placebo_ms: float | None) -> bool:
    """Whether profiled steps differ from steady ones by what the machine does, ms.

    Steps differ by as much by themselves, or the profiled ones are shorter, which no profiling makes them.
    """
    return ms < -_SHORTER * steady_ms or (placebo_ms is not None and abs(ms) <= placebo_ms)


def difference(some_ms: Sequence[float], steady_ms: Sequence[float]) -> StepExcess | None:
    """Return how some steps in a row differ from the steady ones, both in order; None where one of them is empty."""
    if not some_ms or not steady_ms:
        return None
    middle = statistics.median(steady_ms)
    return StepExcess(middle, statistics.median(some_ms) - middle, placebo_ms(steady_ms, len(some_ms)))


def placebo_ms(in_order: Sequence[float], count: int, least: int = _LEAST_STEPS) -> float | None:
    """Return by how much the median of `count` steady steps in a row lies off the median of all, 95 times of 100.

    By the stretches of so many steps themselves, since neighbouring steps are alike; of fewer than three such stretches
    by the steps' own spread (Student's t). None of fewer than `least` steps.
    """
    if len(in_order) >= 3 * count:
        middle = statistics.median(in_order)
        stretches = (in_order[at : at + count] for at in range(len(in_order) - count + 1))
        return percentile(sorted(abs(statistics.median(stretch) - middle) for stretch in stretches), 0.95)
    if len(in_order) < max(2, least):
        return None
    error = statistics.stdev(in_order) * math.sqrt(1 / count + 1 / len(in_order)) * _MEDIAN_OVER_MEAN
    return student_95(len(in_order) - 1) * error


def half_of_median(in_order: Sequence[float]) -> float:
    """Return half of the 95% interval of the median of steps, in their unit: by stretches, since neighbours are alike.

    Of fewer than two steps a stretch by the steps themselves.
    """
    each = len(in_order) // STRETCHES
    if each < 2:
        return _MEDIAN_OVER_MEAN * half_of_mean(in_order)
    return half_of_mean([statistics.median(in_order[at * each : (at + 1) * each]) for at in range(STRETCHES)])


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return what lies at a share of the way through ascending values."""
    position = share * (len(ascending) - 1)
    below = int(position)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (ascending[above] - ascending[below]) * (position - below)
