"""Which steps of a window are longer than its others, by how much, whose they are, and for what.

Each step's own parts tell it, exactly: see `verdicts.now_and_then`, which makes a finding of them. Of those that a
window met at one place alone, while the job's many other steps are known and none is as long, that is known before
anything is priced: they came once, and are no part of what any other step takes.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import StepSplit
from scalescope.scaling.answer_steps import OnceSteps, OwnPart, StepTimes
from scalescope.scaling.verdicts.stragglers import explains

#: In the mean it costs this share of the step.
_WORTH_SAYING = 0.02
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
#: Counts of operators that differ by less than this share are as many.
_AS_MANY = 0.005
#: Longer steps are alike where their standard deviation is within this share of their mean.
_ALIKE = 0.35
#: Most of a longer step is one thing, and is felt; others that are longer by as much share in it.
_MOSTLY = 0.5
#: A part that takes less than this share of what longer steps are longer by is not worth a word beside the largest.
_MUCH = 0.2
#: Ranks take turns where each one's longer steps cost this share of the costliest one's at least.
_BY_TURNS = 0.25


@dataclass(frozen=True)
class LongSplits:
    """A rank's longer steps: which, of how many, and by how much, ms."""

    what: OwnPart
    steps: tuple[int, ...]  # their numbers
    at: tuple[int, ...]
    of: int
    each_ms: tuple[float, ...]
    part_ms: tuple[float, ...]  # of it what `what` is longer
    times_compute: float | None = None  # of launches that come later: how much more the device computes, where it does
    stands_out: bool = False  # by far more than any other of the rank's steps differs by
    times_operators: float | None = None  # the same of how much longer the host takes for each operator, where it does
    as_many: bool = False  # a host that computes for longer runs as many operators there as in the others
    #: … by operator, how many times the elements these work on there, where that may well be why; and whether they work
    #: on as many. Neither where shapes do not tell.
    larger: Mapping[str, float] = field(default_factory=dict)
    same_inputs: bool = False
    rank: int | None = None  # whose they are; None: all ranks'
    waited_ms: float | None = None  # by how much longer their ranks wait for a core there, each; None: nothing tells
    #: What each part of a step that takes much of it is longer by there, in the mean, ms, the largest first.
    parts_ms: Mapping[OwnPart, float] = field(default_factory=dict)
    mean_ms: float = 0.0  # of all steps
    typical_ms: float = 0.0
    others: int = 0  # the job's own steps beside the window, where they are known and none is as long; else 0

    @property
    def ms(self) -> float:
        return sum(self.each_ms) / self.of

    @property
    def for_cores(self) -> bool:
        """Whether they are longer for what their ranks wait for cores in them: what is longer is no other work."""
        return self.waited_ms is not None and self.waited_ms >= _MOSTLY * statistics.fmean(self.each_ms)

    @property
    def once(self) -> bool:
        """Whether they came once, as far as many steps tell."""
        return self.others > 0 and self.places == 1

    @property
    def places(self) -> int:
        """Return at how many places of the window they are: steps in a row are one."""
        return sum(step - 1 not in self.at for step in self.at)


def long_in_window(analysis: RunAnalysis) -> LongSplits | None:
    """Return which steps of the window are longer by the same thing, whose they are and for what; None where none are.

    Nor where the job's own rows tell of steps that are longer every so often: those stand for themselves.
    """
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
    alone = len(long.at) == 1 or rank is None
    if long.ms < _WORTH_SAYING * mean_ms or (alone and statistics.fmean(long.each_ms) < least_ms):
        return None
    waited = [_waited_ms(own, long.at) for at, own in by_rank.items() if rank in (at, None)]
    return replace(
        long,
        rank=rank,
        waited_ms=None if None in waited else max(ms for ms in waited if ms is not None),
        mean_ms=mean_ms,
        typical_ms=typical_ms,
        others=_others_without(long, analysis.step_times, typical_ms),
    )


def once_steps(analysis: RunAnalysis) -> OnceSteps | None:
    """Return the steps of the window that came once, as the job's many other ones tell; None where none did."""
    long = long_in_window(analysis)
    if long is None or not long.once:
        return None
    return OnceSteps(
        steps=list(long.steps),
        rank=long.rank,
        part=long.what,
        each_ms=statistics.fmean(long.each_ms),
        of=long.of,
        others=long.others,
        waited_ms=long.waited_ms,
    )


def _waited_ms(steps: Sequence[StepSplit], at: Sequence[int]) -> float | None:
    """Return how much longer a rank waits for a core in each longer step than in the others; None: nothing tells."""
    waits = [one.core_wait_ms for one in steps if one.core_wait_ms is not None]
    if len(waits) < len(steps):
        return None
    beyond = _beyond_median(waits)
    return max(0.0, statistics.fmean(beyond[index] for index in at))


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


def _longer(steps: Sequence[StepSplit], typical_ms: float, *, on_cpu: bool) -> LongSplits | None:
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
    parts: Mapping[OwnPart, list[float]] = {
        what: _beyond_median([one.part_ms(what) for one in steps]) for what in get_args(OwnPart)
    }
    what = max(parts, key=lambda name: sum(parts[name][index] for index in at))
    if sum(parts[what][index] for index in at) < _MOSTLY * sum(own[index] for index in at):
        return None
    part = tuple(min(parts[what][index], ms) for index, ms in zip(at, each, strict=True))
    late = what == "idle_launch"
    as_many = what == "compute" and _run_as_many(steps, at)
    return LongSplits(
        what,
        tuple(steps[index].step for index in at),
        at,
        len(steps),
        each,
        part,
        stands_out=least >= _TIMES_ONCE * rest,
        parts_ms=_much_of(parts, at, statistics.fmean(each)),
        as_many=on_cpu and as_many,
        larger=_larger_inputs(steps, at) if as_many else {},
        same_inputs=as_many and all(one.times_inputs == {} for one in steps),
        times_compute=_times_compute(steps, at) if late and _may_launch(steps, at, part) else None,
        times_operators=_times_operators(steps, at) if late or (on_cpu and _as_their_operators(steps, at)) else None,
    )


def _much_of(parts: Mapping[OwnPart, list[float]], at: Sequence[int], each_ms: float) -> dict[OwnPart, float]:
    """Return by how much longer steps' parts are longer in the mean, ms, each that is much of it, the largest first."""
    longer = {name: statistics.fmean(ms[index] for index in at) for name, ms in parts.items()}
    return {
        name: ms for name, ms in sorted(longer.items(), key=lambda item: -item[1]) if ms >= _MUCH * each_ms
    }  # fmt: skip


def _may_launch(steps: Sequence[StepSplit], at: Sequence[int], idle_ms: Sequence[float]) -> bool:
    """Tell whether the further operators of longer steps may take most of what nothing runs for longer there.

    One takes its host no longer than the whole step over all of them. A few that compute beside a file that is written
    are no validation. Where their number is not known, nothing speaks against it.
    """
    paces = [one.window_ms / one.operators for one in steps if one.operators]
    if len(paces) < len(steps):
        return True
    counts = [one.operators or 0 for one in steps]
    others = [index for index in range(len(steps)) if index not in at]
    usual, each_ms = (statistics.median(of[index] for index in others) for of in (counts, paces))
    more = statistics.fmean(counts[index] - usual for index in at)
    return more * each_ms >= _MOSTLY * statistics.fmean(idle_ms)


def _times_operators(steps: Sequence[StepSplit], at: Sequence[int]) -> float | None:
    """Return how many times as long a rank's host takes for each operator in longer steps; None: about as long."""
    paces = [one.host_pace for one in steps]
    longer = [pace for index, pace in enumerate(paces) if pace is not None and index in at]
    others = [pace for index, pace in enumerate(paces) if pace is not None and index not in at]
    if len(longer) < len(at) or not others:
        return None
    times = statistics.fmean(longer) / statistics.median(others)
    return times if times >= _SLOWED and not _stand_longer(steps, at, times) else None


def _stand_longer(steps: Sequence[StepSplit], at: Sequence[int], times: float) -> bool:
    """Tell whether a host stands still at one place of longer steps for longer than its slower pace makes of a step.

    What slept for long finds its caches cold, and takes half as long again for some operators.
    """
    usual = statistics.median(one.window_ms for index, one in enumerate(steps) if index not in at)
    stood = [steps[index].stood for index in at]
    return all(one is not None and one.ms * _MOSTLY > (times - 1) * usual for one in stood)


def _run_as_many(steps: Sequence[StepSplit], at: Sequence[int]) -> bool:
    """Tell whether a host runs as many operators in longer steps as in the others: then it computes no more often."""
    counts = [one.operators for one in steps if one.operators]
    if len(counts) < len(steps):
        return False
    usual = statistics.median(count for index, count in enumerate(counts) if index not in at)
    return all(abs(counts[index] - usual) <= _AS_MANY * usual for index in at)


def _larger_inputs(steps: Sequence[StepSplit], at: Sequence[int]) -> dict[str, float]:
    """Return how many times the elements operators work on in each longer step that they do in the others, at least,
    the largest first; nothing where shapes do not tell, or that is too little for what those compute longer.
    """
    others = [index for index in range(len(steps)) if index not in at]
    loads = [one.times_load for one in steps if one.times_load is not None]
    if len(loads) < len(steps):
        return {}
    usual_ms = statistics.median(steps[index].compute_ms for index in others)
    times = statistics.fmean(steps[index].compute_ms for index in at) / usual_ms if usual_ms else 1.0
    more = min(loads[index] for index in at) / statistics.median(loads[index] for index in others)
    if not explains(more, times):
        return {}
    names = sorted({name for one in steps for name in one.times_inputs or {}})
    of_steps = {name: [(one.times_inputs or {}).get(name, 1.0) for one in steps] for name in names}
    larger = {
        name: min(own[index] for index in at) / usual
        for name, own in of_steps.items()
        if (usual := statistics.median(own[index] for index in others)) > 0
    }
    return {
        name: ratio for name, ratio in sorted(larger.items(), key=lambda item: -item[1]) if explains(ratio, 1.0)
    }  # fmt: skip


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


def _whose(
    longer: Mapping[int, LongSplits], by_rank: Mapping[int, Sequence[StepSplit]]
) -> tuple[int | None, LongSplits] | None:
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


def _others_without(long: LongSplits, times: StepTimes | None, typical_ms: float) -> int:
    """Return how many of the job's own steps are known beside the window's, where none of them is as long.

    0 where one is, or they are no more than the window's. As long is what lies as far beyond the shorter of both
    medians: where most of the job's own steps are such, theirs is a long one's.
    """
    if times is None or times.measured_longest_ms is None or times.measured_step_ms is None:
        return 0
    beyond = times.measured_longest_ms - min(times.measured_step_ms, typical_ms)
    return times.measured_steps if times.measured_steps > long.of and beyond < _MOSTLY * min(long.each_ms) else 0


def _has_run_dry(long: LongSplits, rank: int | None, analysis: RunAnalysis) -> bool:
    """Tell whether a device waits for launches in all of the window's last steps, its open one among them.

    A window opens with what hosts launched before they were recorded. One that recording makes slower than its device
    lives on that for some steps, and the device waits for it in all that follow. What comes now and then is over.
    """
    if analysis.activity != "gpu" or long.what != "idle_launch" or long.at != tuple(range(long.at[0], long.of)):
        return False
    each = statistics.fmean(long.each_ms)
    last = [one.idle_launch_ms for one in analysis.steps if one.open_ended and rank in (None, one.rank)]
    return bool(last) and min(last) >= _MOSTLY * each
