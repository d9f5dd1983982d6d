"""Steps that are longer every so often, on both sides: the step's change is of those between, and says nothing of them.

Their period is taken from the side that has one; both sides' steps of its phases are then laid beside their other ones.
A side that has none of them is known to have none once it ran three periods, and these would have stood out.
"""

import math
import statistics
from collections.abc import Sequence

import msgspec

from scalescope.records.rows import StepRow
from scalescope.records.statistics import half_of_mean
from scalescope.scaling.answer_steps import RecurringChange, RecurringSteps
from scalescope.scaling.compare.measurement import Measurement, Repeat
from scalescope.scaling.verdicts.step_rows.recurring import longer_at

#: What is less of the step in the mean is not worth a word.
_LEAST_SHARE = 0.005
#: A side is known to have no such steps where its own at those phases are known to so much of what these take longer.
_MOST_UNTOLD = 0.5
#: What a side's steps at those phases take longer by chance: no cost is known to a tenth of it.
_NONE_BESIDE = 0.1
#: A period is seen at least so often.
_LEAST_TIMES = 3


class _Cost(msgspec.Struct, frozen=True):
    """What steps that recur cost in the mean step, ms, with half of its 95% interval; a time so much."""

    every: int | None
    each_ms: float
    ms: float
    half_ms: float


def recurring_change(
    baseline: Measurement, other: Measurement, step_ms: float, noise_share: float, rate: float = 1.0
) -> RecurringChange | None:
    """Return what steps that recur cost on both sides; None where neither has any, or one is too short to tell.

    `step_ms`: the mean of both sides; `noise_share`: by so much of it two runs' steps are known to differ by
    themselves.
    """
    found = [next((one.recurring for one in side.repeats if one.recurring), None) for side in (baseline, other)]
    if found == [None, None]:
        return None
    costs = []
    for side, own, others in zip((baseline, other), found, reversed(found), strict=True):
        known = [cost for run in side.repeats if (cost := _cost(run, own or others, own is not None)) is not None]
        if not known:
            return None
        costs.append(_joined(known))
    before, after = costs
    after = msgspec.structs.replace(
        after, each_ms=rate * after.each_ms, ms=rate * after.ms, half_ms=rate * after.half_ms
    )
    half = math.hypot(before.half_ms, after.half_ms, noise_share * max(before.ms, after.ms))
    change = after.ms - before.ms
    return RecurringChange(
        baseline_every=before.every,
        other_every=after.every,
        baseline_each_ms=before.each_ms,
        other_each_ms=after.each_ms,
        baseline_ms=before.ms,
        change_ms=change,
        low_ms=change - half,
        high_ms=change + half,
        differs=abs(change) > max(half, _LEAST_SHARE * step_ms),
    )


def _rows(repeat: Repeat) -> list[StepRow]:
    steps = repeat.steady_steps.items()
    return [StepRow(step=step, phase="steady", step_ms=list(times), samples_per_s=0.0) for step, times in steps]


def _cost(repeat: Repeat, steps: RecurringSteps | None, own: bool) -> _Cost | None:
    """Return what a run's steps of these phases take longer than those around them; None where they are too few."""
    if steps is None:
        return None
    if steps.every == 1:  # the loop's own time, which is no step's: a run that was not held up so has none of it
        half = ((steps.longer_high_ms or 0.0) - (steps.longer_low_ms or 0.0)) / 2 * steps.mean_ms / steps.longer_ms
        return _Cost(1, steps.longer_ms, steps.mean_ms, half) if own else _Cost(None, 0.0, 0.0, 0.0)
    each = longer_at(_rows(repeat), steps)
    if len(each) < _LEAST_TIMES:
        return None
    found = repeat.recurring if own else None
    if found is not None and found.longer_low_ms is not None and found.longer_high_ms is not None:
        half = (found.longer_high_ms - found.longer_low_ms) / 2
        return _Cost(steps.every, found.longer_ms, found.mean_ms, half / found.every)  # as `analyze` tells them
    mean, half = statistics.fmean(each), half_of_mean(each)
    chance = max(half, _NONE_BESIDE * steps.longer_ms)
    has = own or mean > chance  # though nobody found them there, beside others that are longer for other reasons
    if not has and half > _MOST_UNTOLD * steps.longer_ms:
        return None
    if not has and abs(mean) <= chance:
        mean = 0.0  # none, but for what it may have without anybody's seeing
    return _Cost(steps.every if has else None, mean, mean / steps.every, half / steps.every)


def _joined(costs: Sequence[_Cost]) -> _Cost:
    """Return the mean of repeats, which tell by themselves how they differ."""
    means = [one.ms for one in costs]
    within = math.hypot(*(one.half_ms for one in costs)) / len(costs)
    return _Cost(
        every=next((one.every for one in costs if one.every is not None), None),
        each_ms=statistics.fmean(one.each_ms for one in costs),
        ms=statistics.fmean(means),
        half_ms=max(half_of_mean(means), within),
    )
