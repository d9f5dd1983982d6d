"""Steps that are far longer now and then, at no period: the step's change is a median's, and says nothing of them.

A run pays its mean step. So what the mean is longer than the median is laid beside the other side's, without what ranks
waited for cores, where both sides tell it. Steps that recur on either side are told by themselves, and are in neither.
"""

import math
import statistics
from collections.abc import Sequence

import msgspec

from scalescope.records.statistics import NORMAL_95, half_of_mean
from scalescope.scaling.answer_steps import RecurringSteps
from scalescope.scaling.compare.answer import IrregularChange
from scalescope.scaling.compare.measurement import Measurement, Repeat

#: By how much of the step its mean is off its median in an undisturbed run, as a standard deviation: on two cores, in
#: 60 runs of five own scripts and without what their ranks waited, 2%, at most 6%.
_UNDISTURBED = 0.025
#: So many times as long as a typical one is a step that is far longer; of fewer of them, or where so many are, it is
#: nothing that a run does now and then.
_FAR_LONGER, _LEAST, _MOST_SHARE = 1.5, 3, 1 / 3
#: What is less of the step in the mean is not worth a word.
_LEAST_SHARE = 0.005
#: Of steps at one or two places, that may never come again, what is less is not.
_RARE_SHARE = 0.05


class _Now(msgspec.Struct, frozen=True):
    """One run's steps: which are far longer, of how many, by how much each and in the mean step, ms."""

    steps: tuple[int, ...]
    of: int
    typical_ms: float
    each_ms: float
    ms: float


def irregular_change(
    baseline: Measurement, other: Measurement, rate: float = 1.0, *, told_apart: bool = True
) -> IrregularChange | None:
    """Return what steps that are far longer now and then cost on both sides; None where neither has any.

    `told_apart`: steps that recur are told by their period. Of a side too short for that they count as they came.
    """
    repeats = [*baseline.repeats, *other.repeats]
    free = all(ms is not None for one in repeats for _, ms in one.every_ms.values())
    periods = [one.recurring for one in repeats if one.recurring is not None and told_apart]
    found = [[_of(one, periods, free=free) for one in side.repeats] for side in (baseline, other)]
    if not all(run.of for own in found for run in own) or not any(run.steps for own in found for run in own):
        return None
    before, after = (statistics.fmean(run.ms for run in own) for own in found)
    halves = [
        max(NORMAL_95 * _UNDISTURBED * max(run.typical_ms for run in own) / math.sqrt(len(own)),
            half_of_mean([run.ms for run in own]))
        for own in found
    ]  # fmt: skip
    half = math.hypot(halves[0], rate * halves[1])
    change = rate * after - before
    step_ms = statistics.fmean(statistics.fmean(run.typical_ms for run in own) for own in found)
    longer = found[1] if change > 0 else found[0]
    count, steps = sum(len(run.steps) for run in longer), sum(run.of for run in longer)
    told = _LEAST <= count <= _MOST_SHARE * steps
    differs = told and abs(change) > max(half, _LEAST_SHARE * step_ms)
    rare = count > 0 and any(one.rare is not None for one in (other if change > 0 else baseline).repeats)
    told_all = IrregularChange(
        baseline_steps=_steps(found[0]),
        baseline_of=sum(run.of for run in found[0]),
        baseline_each_ms=_each(found[0]),
        baseline_ms=before,
        other_steps=_steps(found[1]),
        other_of=sum(run.of for run in found[1]),
        other_each_ms=rate * _each(found[1]),
        change_ms=change,
        low_ms=change - half,
        high_ms=change + half,
        differs=differs,
        too_few=rare and not differs and abs(change) > max(half, _RARE_SHARE * step_ms),
    )
    if not told_all.too_few:
        return told_all
    # of so few, one by one, what `analyze` tells of them: which they are, and what they alone make of the mean step
    few = [[_of_few(run, one) for run, one in zip(own, side.repeats, strict=True)]
           for own, side in zip(found, (baseline, other), strict=True)]  # fmt: skip
    before, after = (statistics.fmean(run.ms for run in own) for own in few)
    change = rate * after - before
    return msgspec.structs.replace(
        told_all,
        baseline_steps=_steps(few[0]),
        baseline_each_ms=_each(few[0]),
        other_steps=_steps(few[1]),
        other_each_ms=rate * _each(few[1]),
        change_ms=change,
        low_ms=change - half,
        high_ms=change + half,
    )


def _of_few(now: _Now, repeat: Repeat) -> _Now:
    """Return a run's steps with what those that are far longer alone cost in the mean one."""
    if (rare := repeat.rare) is not None:
        return _Now(tuple(rare.at), now.of, now.typical_ms, rare.each_ms, rare.ms)
    return msgspec.structs.replace(now, ms=len(now.steps) * now.each_ms / now.of)


def _of(repeat: Repeat, periods: Sequence[RecurringSteps], *, free: bool) -> _Now:
    lengths = [(step, ms if free and ms is not None else length) for step, (length, ms) in repeat.every_ms.items()]
    own = [(step, ms) for step, ms in lengths if not any(one.has(step) for one in periods)]
    if not own:
        return _Now((), 0, 0.0, 0.0, 0.0)
    typical = statistics.median(ms for _, ms in own)
    far = [(step, ms - typical) for step, ms in own if ms > _FAR_LONGER * typical]
    each = statistics.fmean(ms for _, ms in far) if far else 0.0
    mean = statistics.fmean(ms for _, ms in own)
    return _Now(tuple(step for step, _ in far), len(own), typical, each, mean - typical)


def _steps(runs: Sequence[_Now]) -> list[int]:
    return [step for run in runs for step in run.steps]


def _each(runs: Sequence[_Now]) -> float:
    """Return by how much one of them is longer in the mean, ms; 0 where there are none."""
    told = [run.each_ms for run in runs for _ in run.steps]
    return statistics.fmean(told) if told else 0.0
