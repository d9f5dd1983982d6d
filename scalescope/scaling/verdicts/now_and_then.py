"""Steps of a window that are longer than its others by the same thing: validation, a checkpoint, a loader.

A mean over the window hides it: the rank has no more to do in most steps, and the others wait for it in a step that is
another one's. Each step's own parts tell it, exactly and of every step of the window: where a rank's compute, loading
or standing still is longer in some steps by about as much, and by far more than it differs in the others. Ranks that
have such steps by turns are another matter, and what the job's own rows tell of all its steps stands for itself.

A device that waits for launches in a step in which it also computes far more than in the others waits because more is
launched, as in validation: that is more work, not a host that stands still, and recording lengthens it like the rest.
Where the host takes longer for each operator in those steps, it does nothing else in them: something outside of the
job slows it, and the machine is unsteady. So it is where they are a single stretch of the window, and none of the job's
own steps, which are many, is as long: what a loop does beside training comes again.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import msgspec

from scalescope.records.statistics import half_of_mean, share_95
from scalescope.scaling.answer import AsRun, RunAnalysis
from scalescope.scaling.answer_rows import StepSplit
from scalescope.scaling.answer_steps import StepTimes
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding import (
    HOST_SLOWED,
    IN_STEPS,
    LATE_RANK,
    NOT_IN_STEPS,
    TIMES_COMPUTE,
    Code,
    Cure,
    EvidenceRow,
    Finding,
    Remedy,
    is_known,
    is_now_and_then,
    is_of_steady_steps,
)
from scalescope.scaling.finding_order import ranked, weight

What = Literal["compute", "idle_data", "idle_launch"]

#: What a rank does by itself, and what is found where most of a longer step is that.
_OWN: dict[What, tuple[Code, Cure]] = {
    "compute": ("more_work", "do_less_often"),
    "idle_data": ("data_loading", "load_faster"),
    "idle_launch": ("host_stall", "do_less_often"),
}
#: What the means over a window make of it.
_SAME_CAUSE: frozenset[Code] = frozenset({"own_work", "more_work", "slower_compute"})
#: Of fewer steps nothing is told; nor where a larger share of them is longer.
_LEAST_STEPS, _MOST_LONG = 3, 0.5
#: A longer step is so by this share of a typical one at least, and so many times what any other step is.
_LONGER, _TIMES = 0.25, 3
#: A single one is so by as much as a step takes, as are those of all ranks: an optimiser's step comes so, too.
_LONGER_ONCE = 1.0
#: … but for one rank's alone by so much of it, where it is so many times what any other of its steps differs by.
_STANDS_OUT, _TIMES_ONCE = 0.5, 20
#: A device that waits for launches, and computes so many times as much as in the others, has more to do.
_MORE_COMPUTE = 1.5
#: A host that in the mean of the longer steps takes so many times as long for each operator as in the others is slowed.
_SLOWED = 1.25
#: A host that computes for no more than so many times as long as its operators take longer has no more of them.
_AS_OPERATORS = 1.15
#: Longer steps are alike where their standard deviation is within this share of their mean.
_ALIKE = 0.35
#: Most of a longer step is one thing, and is felt; others that are longer by as much share in it.
_MOSTLY = 0.5
#: Ranks take turns where each one's longer steps cost this share of the costliest one's at least.
_BY_TURNS = 0.25
#: So many that come at equal distances are a period.
_REGULAR = 3
#: In the mean it costs this share of the step.
_WORTH_SAYING = 0.02
#: The other steps are known within this share of them: so much slower are devices while they are recorded.
_OTHERS_WITHIN = 0.025
#: Nothing is told surer than this share of it.
_LEAST_SHARE = 0.05


@dataclass(frozen=True)
class _Long:
    """A rank's longer steps: which, of how many, and by how much, ms."""

    what: What
    at: tuple[int, ...]
    of: int
    each_ms: tuple[float, ...]
    part_ms: tuple[float, ...]  # of it what `what` is longer
    times_compute: float | None = None  # of launches that come later: how much more the device computes, where it does
    stands_out: bool = False  # by far more than any other of the rank's steps differs by
    times_operators: float | None = None  # the same of how much longer the host takes for each operator, where it does

    @property
    def ms(self) -> float:
        return sum(self.each_ms) / self.of

    @property
    def places(self) -> int:
        """Return at how many places of the window they are: steps in a row are one."""
        return sum(step - 1 not in self.at for step in self.at)


def with_now_and_then(
    findings: Sequence[Finding], analysis: RunAnalysis, room_ms: float | None = None
) -> list[Finding]:
    """Return the findings with that of longer steps in the window, most costly first; those that say the same stay.

    `room_ms`: of a step that is given, what its devices do not compute for. That other work slowed hosts by more while
    they were recorded is nothing of the step as run.
    """
    found = _finding(analysis)
    if found is None or (found.code == "unsteady" and room_ms is not None and (found.ms or 0.0) > room_ms):
        return list(findings)
    alone = len(analysis.ranks) == 1  # what is of that rank is of all
    if any(_says_the_same(one, found, alone) for one in findings):
        return list(findings)
    if found.code == _OWN["compute"][0] and any(map(is_known, findings)):
        return list(findings)  # threads that take turns on cores compute for longer now and then, with no more to do
    others = [_without(one, found) for one in findings if not _is_part_of(one, found, alone)]
    unpriced = [one for one in others if one.ms is None and one.code != "nothing"]
    return [*ranked([found, *(one for one in others if one.ms is not None)]), *unpriced]


def _says_the_same(one: Finding, found: Finding, alone: bool) -> bool:
    if one.ms is None or not (alone or one.rank in (found.rank, None)):
        return False
    if is_now_and_then(one) and not is_of_steady_steps(one):
        return one.code == found.code
    same = one.code == found.code or {one.code, found.code} <= _SAME_CAUSE
    return same and not one.at_most and weight(one) >= _MOSTLY * weight(found)


def _without(one: Finding, found: Finding) -> Finding:
    """Return a bound on launching less what is launched for longer steps' more work, which is told of those."""
    more = next((row for row in found.evidence if row.name == TIMES_COMPUTE), None)
    if more is None or more.ms is None or one.code != "host_bound" or one.rank != found.rank or one.ms is None:
        return one
    ms, low, high = (None if end is None else max(0.0, end - more.ms) for end in (one.ms, one.low_ms, one.high_ms))
    left = 0.0 if not one.ms or ms is None else ms / one.ms
    fraction = None if one.fraction is None else one.fraction * left
    return msgspec.structs.replace(one, ms=ms, low_ms=low, high_ms=high, fraction=fraction)


def _is_part_of(one: Finding, found: Finding, alone: bool) -> bool:
    """Tell whether a finding is what the mean over the window makes of the longer steps."""
    if one.ms is None or is_now_and_then(one):
        return False
    same = one.code == found.code and (alone or one.rank == found.rank)
    return same or (one.code == "unsteady" and weight(one) <= 2 * weight(found))


def _finding(analysis: RunAnalysis) -> Finding | None:
    if analysis.recurring is not None or analysis.steps_by is None or not analysis.steps:
        return None
    by_rank = _in_common(analysis.steps)
    if not by_rank or len(next(iter(by_rank.values()))) < _LEAST_STEPS:
        return None
    mean_ms = statistics.fmean(one.window_ms for own in by_rank.values() for one in own)
    typical_ms = min(statistics.median(one.window_ms for one in own) for own in by_rank.values())
    on_cpu = analysis.activity == "cpu"
    longer = {
        rank: found for rank, own in by_rank.items() if (found := _longer(own, typical_ms, on_cpu=on_cpu)) is not None
    }
    chosen = _whose(longer, by_rank)
    if chosen is None:
        return None
    rank, long = chosen
    if _has_run_dry(long, rank, analysis):
        return None
    least_ms = (_STANDS_OUT if rank is not None and long.stands_out else _LONGER_ONCE) * typical_ms
    once = len(long.at) == 1 or rank is None
    if long.ms < _WORTH_SAYING * mean_ms or (once and statistics.fmean(long.each_ms) < least_ms):
        return None
    others = _others_without(long, analysis.step_times)
    low, high = _bounds(long, others)
    code, cure = _OWN[long.what]
    each, ms, step_ms = statistics.fmean(long.each_ms), long.ms * long.of / (long.of + others), mean_ms
    if others and analysis.step_times is not None and analysis.step_times.measured_step_ms is not None:
        step_ms = (mean_ms * long.of + analysis.step_times.measured_step_ms * others) / (long.of + others)
    longer_by = EvidenceRow(kind="figure", name=long.what, ms=long.ms)
    if long.times_compute is not None:
        code, cure = _OWN["compute"]
        likely, least, most = _of_recorded(analysis.as_run, mean_ms)
        each, ms, low, high, step_ms = each * likely, ms * likely, low * least, high * most, mean_ms * likely
        waits_ms = likely * sum(long.part_ms) / long.of
        longer_by = EvidenceRow(kind="figure", name=TIMES_COMPUTE, ms=waits_ms, value=long.times_compute)
    elif (told := _beyond_the_others(analysis.as_run, typical_ms, mean_ms)) is not None and low <= told.value <= high:
        ms, low, high = told.value, max(low, told.low), min(high, told.high)
    rows = [EvidenceRow(kind="figure", name=IN_STEPS, ms=each, calls=float(len(long.at)), value=float(long.of))]
    if others:
        rows.append(EvidenceRow(kind="figure", name=NOT_IN_STEPS, value=float(others)))
    slowed = long.times_operators if long.times_compute is None else None
    if slowed is not None or (others and long.places == 1):
        code, cure = "unsteady", "measure_again"
        if slowed is not None:
            rows.append(EvidenceRow(kind="figure", name=HOST_SLOWED, ms=ms, value=slowed))
        if rank is not None:
            rows.append(EvidenceRow(kind="figure", name=LATE_RANK, value=float(rank)))
        rank = None  # whoever is slowed, what does it is not of its own making
    return Finding(
        code=code,
        rank=rank,
        ms=ms,
        low_ms=low,
        high_ms=high,
        fraction=ms / step_ms,
        evidence=(longer_by, *rows),
        remedy=Remedy(cure=cure),
        backed="measured",
    )


def _beyond_the_others(as_run: AsRun | None, typical_ms: float, recorded_ms: float) -> Interval | None:
    """Return by how much a mean step that is known is longer than the typical one, ms: what longer ones cost it.

    However few of a window's steps they are, so much they have in all steps. None where recording's scale was found by
    that step, as which the window's mean then counts; or where it is not longer, as a median is, which has none of it.
    """
    if as_run is None or as_run.step_ms is None or as_run.untraced_ms is None or as_run.contradicts is not None:
        return None
    if as_run.reason != "not_reached" and as_run.source != "not_needed":
        return None
    likely, _, _ = _of_recorded(as_run, recorded_ms)
    known, others_ms = as_run.untraced_ms, likely * typical_ms
    beyond = known.value - others_ms
    half = math.hypot((known.high - known.low) / 2, _OTHERS_WITHIN * others_ms, _LEAST_SHARE * beyond)
    return Interval(beyond, beyond - half, beyond + half) if beyond > 2 * half else None


def _of_recorded(as_run: AsRun | None, recorded_ms: float) -> tuple[float, float, float]:
    """Return which share of recorded steps is there without recording: likely, at least and at most.

    Launches are what recording makes longer, those of the longer steps as those of the others.
    """
    if as_run is None or as_run.step_ms is None:
        return 1.0, 1.0, 1.0
    bounds = (as_run.step_ms, as_run.low_ms, as_run.high_ms)
    likely, least, most = (min(1.0, (as_run.step_ms if one is None else one) / recorded_ms) for one in bounds)
    return likely, min(least, likely), max(most, likely)


def _has_run_dry(long: _Long, rank: int | None, analysis: RunAnalysis) -> bool:
    """Tell whether a device waits for launches in all of the window's last steps, its open one among them.

    A window opens with what hosts launched before they were recorded. One that recording makes slower than its device
    lives on that for some steps, and the device waits for it in all that follow. What comes now and then is over again.
    """
    if analysis.activity != "gpu" or long.what != "idle_launch" or long.at != tuple(range(long.at[0], long.of)):
        return False
    each = statistics.fmean(long.each_ms)
    last = [one.idle_launch_ms for one in analysis.steps if one.open_ended and rank in (None, one.rank)]
    return bool(last) and min(last) >= _MOSTLY * each


def _in_common(steps: Sequence[StepSplit]) -> dict[int, list[StepSplit]]:
    """Return by rank the steps, in order, that all ranks have and that a next one bounds."""
    by_rank: dict[int, dict[int, StepSplit]] = {}
    for one in steps:
        if not one.open_ended:
            by_rank.setdefault(one.rank, {})[one.step] = one
    numbers = sorted(set.intersection(*(set(own) for own in by_rank.values()))) if by_rank else []
    return {rank: [own[number] for number in numbers] for rank, own in sorted(by_rank.items())}


def _own_ms(step: StepSplit) -> float:
    return step.compute_ms + step.exposed_memory_ms + step.idle_data_ms + step.idle_launch_ms + step.idle_queued_ms


def _longer(steps: Sequence[StepSplit], typical_ms: float, *, on_cpu: bool) -> _Long | None:
    """Return a rank's steps that are longer by what it does itself; None where none are, or they are not alike."""
    own = _beyond_median([_own_ms(one) for one in steps])
    windows = _beyond_median([one.window_ms for one in steps])
    most = max(own)
    at = tuple(index for index, ms in enumerate(own) if ms >= _MOSTLY * most)
    least = min(own[index] for index in at)
    rest = max((abs(ms) for index, ms in enumerate(own) if index not in at), default=0.0)
    if least < _LONGER * typical_ms or least < _TIMES * rest or len(at) > _MOST_LONG * len(steps) or at == (0,):
        return None
    # what a rank does while it would have waited anyway, nobody feels
    each = tuple(min(own[index], windows[index]) for index in at)
    if min(each) < _MOSTLY * least or statistics.pstdev(each) > _ALIKE * statistics.fmean(each):
        return None
    parts: Mapping[What, list[float]] = {what: _beyond_median([one.part_ms(what) for one in steps]) for what in _OWN}
    what = max(parts, key=lambda name: sum(parts[name][index] for index in at))
    if sum(parts[what][index] for index in at) < _MOSTLY * sum(own[index] for index in at):
        return None
    part = tuple(min(parts[what][index], ms) for index, ms in zip(at, each, strict=True))
    late = what == "idle_launch"
    return _Long(
        what,
        at,
        len(steps),
        each,
        part,
        stands_out=least >= _TIMES_ONCE * rest,
        times_compute=_times_compute(steps, at) if late else None,
        times_operators=_times_operators(steps, at) if late or (on_cpu and _as_their_operators(steps, at)) else None,
    )


def _times_operators(steps: Sequence[StepSplit], at: Sequence[int]) -> float | None:
    """Return how many times as long a rank's host takes for each operator in longer steps; None: about as long."""
    paces = [one.host_pace for one in steps]
    longer = [pace for index, pace in enumerate(paces) if pace is not None and index in at]
    others = [pace for index, pace in enumerate(paces) if pace is not None and index not in at]
    if len(longer) < len(at) or not others:
        return None
    times = statistics.fmean(longer) / statistics.median(others)
    return times if times >= _SLOWED else None


def _as_their_operators(steps: Sequence[StepSplit], at: Sequence[int]) -> bool:
    """Tell whether a host that computes takes no longer in longer steps than for each of its operators.

    More of them, as in validation, or larger ones, which small ones beside them do not follow, take longer than that.
    """
    times = _times_operators(steps, at)
    usual = statistics.median(one.compute_ms for index, one in enumerate(steps) if index not in at)
    longer = statistics.fmean(steps[index].compute_ms for index in at)
    return times is not None and usual > 0 and longer <= _AS_OPERATORS * times * usual


def _times_compute(steps: Sequence[StepSplit], at: Sequence[int]) -> float | None:
    """Return how many times what it computes in the others a rank computes in each longer step; None: no more."""
    usual = statistics.median(one.compute_ms for index, one in enumerate(steps) if index not in at)
    least = min(steps[index].compute_ms for index in at)
    return least / usual if usual > 0 and least >= _MORE_COMPUTE * usual else None


def _beyond_median(values: Sequence[float]) -> list[float]:
    usual = statistics.median_low(values)  # of every second step that is longer, those between
    return [value - usual for value in values]


def _whose(longer: Mapping[int, _Long], by_rank: Mapping[int, Sequence[StepSplit]]) -> tuple[int | None, _Long] | None:
    """Return the longer steps with the one rank whose they are, None for all ranks; None where several take turns."""
    if not longer:
        return None
    rank, most = max(longer.items(), key=lambda item: item[1].ms)
    # what another rank meets once, and is small beside it, takes no turns with it
    longer = {at: one for at, one in longer.items() if one.ms >= _BY_TURNS * most.ms}
    if len(longer) == 1:
        others = [_beyond_median([_own_ms(one) for one in own]) for at, own in by_rank.items() if at != rank]
        # a rank beside it whose steps are longer, too, for something else
        if any(
            max(own[index] for own in others) >= _MOSTLY * each
            for index, each in zip(most.at, most.each_ms, strict=True)
            if others
        ):
            return None
        return (rank if others else None), most
    if len(longer) == len(by_rank) and all(one.at == most.at and one.what == most.what for one in longer.values()):
        return None, min(longer.values(), key=lambda one: one.ms)
    return None


def _others_without(long: _Long, times: StepTimes | None) -> int:
    """Return how many of the job's own steps are known beside the window's, where none of them is as long.

    0 where one is, or they are no more than the window's.
    """
    if times is None or times.measured_longest_ms is None or times.measured_step_ms is None:
        return 0
    beyond = times.measured_longest_ms - times.measured_step_ms
    return times.measured_steps if times.measured_steps > long.of and beyond < _MOSTLY * min(long.each_ms) else 0


def _bounds(long: _Long, others: int) -> tuple[float, float]:
    """Return between what the cost lies in the mean of other steps than these: by the period where they have one, else
    by how many there are, of these and as many others as are without. A single place of them may be chance.
    """
    count = len(long.at)
    apart = {after - before for before, after in pairwise(long.at)}
    if count >= _REGULAR and len(apart) == 1 and not others:
        period = apart.pop()
        if long.at[0] < period and long.of - 1 - long.at[-1] < period:
            mean, half = statistics.fmean(long.each_ms), half_of_mean(long.each_ms)
            ends = ((mean - half) / period, (mean + half) / period)
            return max(0.0, min(long.ms, ends[0])), max(long.ms, ends[1])
    low, high = share_95(count, long.of + others)
    each = statistics.fmean(long.each_ms)
    return (0.0 if long.places == 1 else each * low), each * high
