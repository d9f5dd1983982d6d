"""The rank that keeps the others waiting on one side and not on the other, by all steady steps of both.

Beside other processes, steps of two runs differ by tens of percent, and a window of three steps by more. But each row
has how long every rank goes on by itself until it first waits for the others, and how long of that it had no core. Of
one run's ranks, which share the machine and its moods, these differ by little: what one rank alone does stands out.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, median, pstdev

import msgspec

from scalescope.scaling.compare.answer import LateChange
from scalescope.scaling.compare.measurement import Measurement
from scalescope.scaling.compare.spread import drift_of, stretches_of

#: Less of the step is not worth a word.
LEAST_SHARE = 0.05
#: What a rank's own time beside the others' differs by between runs, as a standard deviation and a share of the step:
#: in 14 runs of one job on two cores it was 2%.
_BETWEEN_RUNS = 0.03


class Lateness(msgspec.Struct, frozen=True):
    """How long after all others a rank is ready in the median step, below 0 before one of them, and its variance."""

    ms: float
    variance: float


def late_change(baseline: Measurement, other: Measurement, steps_ms: tuple[float, float]) -> LateChange | None:
    """Return whom others wait for longer on one side, most first, beyond noise; None where nobody is, or rows tell not.

    `steps_ms`: of both sides.
    """
    sides = [lateness_of(side, ms) for side, ms in zip((baseline, other), steps_ms, strict=True)]
    ranks = [rank for rank in sides[0] if rank in sides[1]]
    found = []
    for rank in ranks:
        before, after = sides[0][rank], sides[1][rank]
        change = max(0.0, after.ms) - max(0.0, before.ms)
        half = half_of(before, after, len(ranks))
        if abs(change) > max(half, LEAST_SHARE * fmean(steps_ms)):
            found.append(LateChange(rank=rank, change_ms=change, low_ms=change - half, high_ms=change + half,
                                    baseline_ms=max(0.0, before.ms), other_ms=max(0.0, after.ms)))  # fmt: skip
    return max(found, key=lambda one: abs(one.change_ms), default=None)


def half_of(before: Lateness, after: Lateness, ranks: int) -> float:
    """Return half of the interval of what two ranks' lateness differs by, 95% of so many ranks at once, ms."""
    quantile = NormalDist().inv_cdf((1 + 0.95 ** (1 / max(1, ranks))) / 2)
    return quantile * math.sqrt(before.variance + after.variance)


def lateness_of(side: Measurement, step_ms: float) -> dict[int, Lateness]:
    """Return each rank's lateness, the mean of repeats; none where one does not tell."""
    count = len(side.repeats)
    ranks = set.intersection(*(set(one.late_ms) for one in side.repeats))
    found = {}
    for rank in sorted(ranks):
        own = [one.late_ms[rank] for one in side.repeats]
        variance = (sum(map(_variance, own)) / count + (_BETWEEN_RUNS * step_ms) ** 2) / count
        found[rank] = Lateness(fmean(median(one) for one in own), variance)
    return found


def _variance(late_ms: Sequence[float]) -> float:
    """Return by how much a run's median is off, as a variance, ms²."""
    stretches = stretches_of(late_ms)
    return float(pstdev(stretches) ** 2 / (len(stretches) - 1) + drift_of(late_ms) ** 2)
