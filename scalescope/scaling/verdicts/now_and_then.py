"""Steps of a window that are longer than its others by the same thing: validation, a checkpoint, a loader.

A mean over the window hides it: the rank has no more to do in most steps, and the others wait for it in a step that is
another one's. Each step's own parts tell it, exactly and of every step of the window: where a rank's compute, loading
or standing still is longer in some steps by about as much, and by far more than it differs in the others. Ranks that
have such steps by turns are another matter, and what the job's own rows tell of all its steps stands for itself.

A device that waits for launches in a step in which it also computes far more than in the others waits because more is
launched, as in validation: that is more work, not a host that stands still, and recording lengthens it like the rest.
Where the host takes longer for each operator in those steps, it does nothing else in them: something outside of the
job slows it, and the machine is unsteady. So it is where they are a single stretch of the window, and none of the job's
own steps, which are many, is as long: what a loop does beside training comes again. What a host does between its own
passes meanwhile, and waits for no core, is its own all the same.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from scalescope.records.statistics import half_of_mean, share_95
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import OwnPart
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.codes import Code, Cure
from scalescope.scaling.finding.figures import (
    AS_MANY,
    HOST_SLOWED,
    IN_STEPS,
    INPUTS,
    LARGER_IN,
    LATE_RANK,
    LONGER_BY,
    LONGER_IN,
    NOT_IN_STEPS,
    SAME_INPUTS,
    STEP_NUMBER,
    STOOD_BEFORE,
    TIMES_COMPUTE,
    WAITED_THERE,
)
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.kinds import (
    is_certain,
    is_known,
    is_now_and_then,
    is_of_profiled_steps,
    is_of_steady_steps,
    is_within_noise,
)
from scalescope.scaling.finding.order import ranked, weight
from scalescope.scaling.verdicts.step_rows.in_window import LongSplits, long_in_window

#: What a rank does by itself, and what is found where most of a longer step is that.
_OWN: dict[OwnPart, tuple[Code, Cure]] = {
    "compute": ("more_work", "do_less_often"),
    "idle_data": ("data_loading", "load_faster"),
    "idle_launch": ("host_stall", "do_less_often"),
}
#: What the means over a window make of it.
_SAME_CAUSE: frozenset[Code] = frozenset({"own_work", "more_work", "slower_compute"})
#: So many that come at equal distances are a period.
_REGULAR = 3
#: Most of a finding's weight, or of a longer step.
_MOSTLY = 0.5
#: So many operators are named whose inputs are larger; and what of them has no lengths, but sizes.
_OPERATORS = 2
_CONVOLVES = "convolution"
#: So many steps in a row are named.
_NAMED = 6
#: The other steps are known within this share of them: so much slower are devices while they are recorded.
_OTHERS_WITHIN = 0.025
#: Nothing is told surer than this share of it.
_LEAST_SHARE = 0.05


def with_now_and_then(
    findings: Sequence[Finding], analysis: RunAnalysis, room_ms: float | None = None
) -> list[Finding]:
    """Return the findings with that of longer steps in the window, most costly first; those that say the same stay.

    `room_ms`: of a step that is given, what its devices do not compute for. That other work slowed hosts by more while
    they were recorded is nothing of the step as run, nor are steps that may as well have been long by chance.
    """
    found = _finding(analysis)
    if found is None or (room_ms is not None and (found.ms or 0.0) > room_ms and _may_be_recording(found)):
        return list(findings)
    alone = len(analysis.ranks) == 1  # what is of that rank is of all
    if any(_says_the_same(one, found, alone) for one in findings):
        return list(findings)
    if found.code == _OWN["compute"][0] and not is_certain(found) and any(map(is_known, findings)):
        return list(findings)  # threads that take turns on cores compute for longer now and then, with no more to do
    others = [_without(one, found) for one in findings if not _is_part_of(one, found, alone)]
    unpriced = [one for one in others if one.ms is None and one.code != "nothing"]
    return [*ranked([found, *(one for one in others if one.ms is not None)]), *unpriced]


def _may_be_recording(found: Finding) -> bool:
    return found.code == "unsteady" or is_within_noise(found)


def _says_the_same(one: Finding, found: Finding, alone: bool) -> bool:
    if one.ms is None or not (alone or one.rank in (found.rank, None)):
        return False
    if is_now_and_then(one) and not is_of_steady_steps(one):
        return one.code == found.code and not _came_once(found)
    same = one.code == found.code or {one.code, found.code} <= _SAME_CAUSE
    if same and is_of_profiled_steps(one):
        return True  # what all steps have sized already
    return same and not one.at_most and weight(one) >= _MOSTLY * weight(found)


def _came_once(found: Finding) -> bool:
    return any(row.name == NOT_IN_STEPS for row in found.evidence)


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
    if one.ms is None:
        return False
    same = one.code == found.code and (alone or one.rank == found.rank)
    if is_now_and_then(one):  # … or what the window alone makes of what came once
        return same and _came_once(found) and not is_of_steady_steps(one)
    return same or (one.code == "unsteady" and weight(one) <= 2 * weight(found))


def _finding(analysis: RunAnalysis) -> Finding | None:
    long = long_in_window(analysis)
    if long is None:
        return None
    rank, mean_ms, others = long.rank, long.mean_ms, long.others
    low, high = _bounds(long, others)
    code, cure = _OWN[long.what]
    each, ms, step_ms = statistics.fmean(long.each_ms), long.ms * long.of / (long.of + others), mean_ms
    if others and analysis.step_times is not None and analysis.step_times.measured_step_ms is not None:
        step_ms = (mean_ms * long.of + analysis.step_times.measured_step_ms * others) / (long.of + others)
    longer_by = EvidenceRow(kind="figure", name=long.what, ms=long.ms)
    if long.times_compute is not None:
        code, cure = _OWN["compute"]
        likely, least, most = _of_recorded(analysis, mean_ms)
        each, ms, low, high, step_ms = each * likely, ms * likely, low * least, high * most, mean_ms * likely
        waits_ms = likely * sum(long.part_ms) / long.of
        longer_by = EvidenceRow(kind="figure", name=TIMES_COMPUTE, ms=waits_ms, value=long.times_compute)
    elif (told := _beyond_the_others(analysis, long.typical_ms, mean_ms)) is not None and low <= told.value <= high:
        ms, low, high = told.value, max(low, told.low), min(high, told.high)
    rows = [EvidenceRow(kind="figure", name=IN_STEPS, ms=each, calls=float(len(long.at)), value=float(long.of))]
    if others:
        rows.append(EvidenceRow(kind="figure", name=NOT_IN_STEPS, value=float(others)))
    if long.places == 1 and len(long.steps) <= _NAMED and analysis.steps_by == "profiler":
        rows += [EvidenceRow(kind="figure", name=STEP_NUMBER, value=float(step)) for step in long.steps]
    if long.times_compute is None and len(long.parts_ms) > 1:
        rows += [EvidenceRow(kind="figure", name=f"{LONGER_BY} {part}", ms=own) for part, own in long.parts_ms.items()]
    if long.waited_ms is not None:
        rows.append(EvidenceRow(kind="figure", name=WAITED_THERE, ms=long.waited_ms))
    slowed = long.times_operators if long.times_compute is None else None
    if long.as_many or long.larger:
        rows.append(EvidenceRow(kind="figure", name=AS_MANY))
    if long.same_inputs:
        rows.append(EvidenceRow(kind="figure", name=SAME_INPUTS))
    larger = larger_inputs(long.larger)
    if larger and not long.for_cores:
        # whose batches differ in size has more to do, however quick it is: that is no chance, and no other's doing
        longest = next(iter(long.larger))
        code, cure = "more_work", "even_out" if _CONVOLVES in longest else "even_out_lengths"
        if rank is None:
            # ranks that have more in the same steps wait for nobody: it may be what they need
            cure, low, high = "pad_less", 0.0, ms
        rows += larger
    elif slowed is not None or long.for_cores or long.as_many or (long.once and not _is_of_its_host(long)):
        code, cure = "unsteady", "measure_again"
        if long.as_many and not others and rank is not None:
            cure = "look_at_device"
        if slowed is not None:
            rows.append(EvidenceRow(kind="figure", name=HOST_SLOWED, ms=ms, value=slowed))
        if rank is not None:
            rows.append(EvidenceRow(kind="figure", name=LATE_RANK, value=float(rank)))
        rank = None  # whoever is slowed, what does it is not of its own making
    elif long.what == "idle_launch" and (stood := _stood(analysis, long)) is not None:
        rows.append(stood)
    elif long.what == "compute":
        rows += _longer_in(analysis, long)
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
        at_most=cure == "pad_less",
    )


def larger_inputs(times: Mapping[str, float]) -> tuple[EvidenceRow, ...]:
    """Return the evidence of inputs that are larger, by operator: of the first few, and of all together the least."""
    if not times:
        return ()
    named = [
        EvidenceRow(kind="figure", name=f"{LARGER_IN} {name}", value=ratio)
        for name, ratio in list(times.items())[:_OPERATORS]
    ]
    return (EvidenceRow(kind="figure", name=INPUTS, value=min(one.value or 0.0 for one in named)), *named)


def _is_of_its_host(long: LongSplits) -> bool:
    """Tell whether a rank's host did something else than its passes in longer steps, and is known not to have waited
    for a core: that is its own, though it came once.
    """
    if long.what != "idle_launch" or long.rank is None or long.times_compute is not None:
        return False
    return long.waited_ms is not None and not long.for_cores


def _stood(analysis: RunAnalysis, long: LongSplits) -> EvidenceRow | None:
    """Return where in a single longer step its host does nothing recorded for most of what that takes longer."""
    stood = [one.stood for one in analysis.steps if one.rank == long.rank and one.step in long.steps]
    if len(stood) != 1 or stood[0] is None or stood[0].ms < _MOSTLY * min(long.each_ms):
        return None
    name = f"{STOOD_BEFORE} {stood[0].before}".rstrip()
    return EvidenceRow(kind="figure", name=name, ms=stood[0].ms, place=stood[0].place)


def _longer_in(analysis: RunAnalysis, long: LongSplits) -> tuple[EvidenceRow, ...]:
    """Return the one operator that takes most of what longer steps compute longer, in each; nothing where none does."""
    own = [one.longer_in for one in analysis.steps if one.step in long.steps and long.rank in (one.rank, None)]
    told = [one for one in own if one is not None]
    if not told or len(told) < len(own) or len({one.operator for one in told}) > 1:
        return ()
    if min(one.ms for one in told) < _MOSTLY * statistics.fmean(long.part_ms):
        return ()
    name, ms = f"{LONGER_IN} {told[0].operator}", statistics.fmean(one.ms for one in told)
    return (EvidenceRow(kind="figure", name=name, ms=min(ms, statistics.fmean(long.part_ms))),)


def _beyond_the_others(analysis: RunAnalysis, typical_ms: float, recorded_ms: float) -> Interval | None:
    """Return by how much a mean step that is known is longer than the typical one, ms: what longer ones cost it.

    However few of a window's steps they are, so much they have in all steps. None where recording's scale was found by
    that step, as which the window's mean then counts; or where it is not longer, as a median is, which has none of it.
    """
    as_run = analysis.as_run
    if as_run is None or as_run.step_ms is None or as_run.untraced_ms is None or as_run.contradicts is not None:
        return None
    if as_run.reason != "not_reached" and as_run.source != "not_needed":
        return None
    likely, _, _ = _of_recorded(analysis, recorded_ms)
    known, others_ms = as_run.untraced_ms, likely * typical_ms
    beyond = known.value - others_ms
    half = math.hypot((known.high - known.low) / 2, _OTHERS_WITHIN * others_ms, _LEAST_SHARE * beyond)
    return Interval(beyond, beyond - half, beyond + half) if beyond > 2 * half else None


def _of_recorded(analysis: RunAnalysis, recorded_ms: float) -> tuple[float, float, float]:
    """Return which share of recorded steps is there without recording: likely, at least and at most.

    Launches are what recording makes longer, those of the longer steps as those of the others. The step without it is
    laid beside the very steps that it is of: longer ones may be none of those.
    """
    as_run = analysis.as_run
    if as_run is None or as_run.step_ms is None:
        return 1.0, 1.0, 1.0
    same = [one.window_ms for one in analysis.steps if one.step in as_run.step_numbers]
    recorded_ms = statistics.fmean(same) if same else recorded_ms
    bounds = (as_run.step_ms, as_run.low_ms, as_run.high_ms)
    likely, least, most = (min(1.0, (as_run.step_ms if one is None else one) / recorded_ms) for one in bounds)
    return likely, min(least, likely), max(most, likely)


def _bounds(long: LongSplits, others: int) -> tuple[float, float]:
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
