"""A finding of a window's few longer steps that is what steps longer every so often do: one cause, told once.

It may be known as theirs by its place, and then is what they do. Or it is a rank's lateness in the mean of all profiled
steps, of which the others have none: then it is their time, and names nothing.
"""

import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.records.statistics import is_beyond_chance
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import RecurringSteps
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.figures import AT_STEP, GARBAGE, IN_STEPS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.kinds import is_certain, is_late, is_now_and_then, is_of_steady_steps, is_within_noise
from scalescope.scaling.finding.order import is_trifle_on_cpus, is_usual_launching, weight
from scalescope.scaling.findings.shares import mean_step_ms

#: One cause takes about as long in the profiled steps as in all: within so many times.
_AS_LONG = 2.0
#: What a rank's host, or its operators, may seem to take longer in the mean of all steps for a few of them alone.
_OF_ONE_RANK: tuple[Code, ...] = ("host_stall", "host_starved", "slower_compute", "unsteady")
#: Of so many steps their places in a window are told.
_FEW = 2
#: A rank's lateness is that of steps which recur where they have so much of it, and the others none beyond chance.
_MOST_OF_IT = 0.6


def without_recurring(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return the findings without those that say what the steps that recur do: the costliest is then told of these.

    All steps tell what they cost in the mean: a window has more or fewer of them than come to it.
    """
    found = analysis.recurring
    if found is None or not found.is_worth_a_word:
        return list(findings)
    same = [one for one in findings if _is_what_they_do(one, found, analysis)]
    if (doing := same[0] if same else _stood_there(found, analysis)) is not None:
        analysis.recurring = replace(found, doing=doing)
    theirs = [
        one
        for one in findings
        if _is_their_time(one, found, analysis)
        or _is_late_by_them(one, found)
        or _is_no_time_of_the_job_s(one, found, analysis)
    ]
    return [one for one in findings if one not in same and one not in theirs]


def leads(run: RunAnalysis) -> bool:
    """Tell whether they cost more than anything that the profiled steps tell for sure."""
    found = run.recurring
    if found is None or not found.is_worth_a_word:
        return False
    first = next((one for one in run.findings[:1] if one.ms is not None), None)
    if first is not None and is_late(first) and first.code == "data_loading":
        return False  # which is of all steps, these among them
    in_the_window = first is not None and is_now_and_then(first) and not is_of_steady_steps(first)
    if first is None or in_the_window or is_within_noise(first):
        return True
    sure = (found.longer_low_ms or 0.0) > 0
    step_ms = mean_step_ms(run, "window")
    if run.activity == "cpu" and sure and is_usual_launching(first, step_ms):
        return found.mean_ms > weight(first) or not is_trifle_on_cpus(found.mean_ms, step_ms)
    # of a bound that begins at nothing nobody knows that any can be had
    unsure = first.at_most and (first.low_ms or 0.0) <= 0
    return found.mean_ms > weight(first) or (unsure and sure)


def lead_before_launching(run: RunAnalysis) -> bool:
    """Tell whether they come first for sure, before no more launching than any eager step of CPUs has: which is no news
    beside them.
    """
    found, first = run.recurring, next(iter(run.findings), None)
    if found is None or first is None or run.activity != "cpu" or not leads(run):
        return False
    return (found.longer_low_ms or 0.0) > 0 and is_usual_launching(first, mean_step_ms(run, "window"))


def cost_as_much(run: RunAnalysis) -> bool:
    """Tell whether they may as well cost more than what comes first: each one's cost lies in the other's interval."""
    found, first = run.recurring, next(iter(run.findings), None)
    if found is None or first is None or not found.is_worth_a_word or leads(run):
        return False
    if first.ms is None or first.at_most or first.low_ms is None or first.high_ms is None or is_within_noise(first):
        return False
    low, high = found.longer_low_ms, found.longer_high_ms
    if low is None or high is None or low <= 0:
        return False
    return first.low_ms <= found.mean_ms <= first.high_ms and low <= first.ms * found.every <= high


def place(findings: Sequence[Finding], run: RunAnalysis) -> int | None:
    """Return before which of the findings, in their order, they come; None where they are not worth a word.

    Never before what is told first, unless they are; but before bounds, and what noise may have made.
    """
    found = run.recurring
    if found is None or not found.is_worth_a_word:
        return None
    if leads(run):
        return 0
    return next(
        (
            at for at, one in enumerate(findings)
            if at and (one.at_most or is_within_noise(one) or weight(one) < found.mean_ms)
        ),
        len(findings),
    )  # fmt: skip


def steps_of(one: Finding, analysis: RunAnalysis) -> set[int]:
    """Return the profiled steps that have what is there in some of them alone; none where that is not told."""
    row = next((row for row in one.evidence if row.name == IN_STEPS), None)
    if row is None or row.calls is None or row.value is None or row.calls >= row.value or is_of_steady_steps(one):
        return set()
    own: dict[int, float] = {}
    for split in analysis.steps:
        if one.rank in (split.rank, None):
            own[split.step] = own.get(split.step, 0.0) + split.by_itself_ms
    return set(sorted(own, key=lambda step: -own[step])[: round(row.calls)])


def _is_what_they_do(one: Finding, found: RecurringSteps, analysis: RunAnalysis) -> bool:
    """Tell whether a finding is in the very steps that recur, on their rank, and takes about as long."""
    row = next((row for row in one.evidence if row.name == IN_STEPS), None)
    if row is None or row.ms is None or row.calls is None or row.value is None or row.calls >= row.value:
        return False
    if one.ms is None or one.ranks or is_of_steady_steps(one) or is_late(one):
        return False
    if len(analysis.ranks) > 1 and found.rank not in (one.rank, None):  # where all wait in mid-step rows tell no rank
        return False
    if not found.longer_ms / _AS_LONG <= row.ms <= found.longer_ms * _AS_LONG:
        return False
    held = {split.step for split in analysis.steps if one.rank in (split.rank, None)}
    return steps_of(one, analysis) == {step for step in held if found.begins_in(step)}


def _stood_there(found: RecurringSteps, analysis: RunAnalysis) -> Finding | None:
    """Return what a rank's host does in the profiled ones of them, where for about as long nothing is recorded of it at
    one place there; None where it is not so.

    In a window's last step, too, which ends for its device before the host goes on, and in which nothing is priced.
    """
    rank = analysis.ranks[0].rank if len(analysis.ranks) == 1 else found.rank
    own = {split.step: split for split in analysis.steps if split.rank == rank}
    theirs = [step for step in sorted(own) if found.begins_in(step)]
    stood = [one for step in theirs if (one := own[step].stood) is not None]
    if not stood or len(stood) < len(theirs):
        return None
    each = statistics.fmean(one.ms for one in stood)
    if not found.longer_ms / _AS_LONG <= each <= found.longer_ms * _AS_LONG:
        return None
    first, collects = stood[0], all(one.collects for one in stood)
    name = GARBAGE if collects else f"gap_before {first.before or 'the end of the step'}"
    at = [sorted(own).index(step) + 1 for step in theirs]
    return Finding(
        code="host_stall",
        rank=rank,
        ms=each * len(theirs) / len(own),
        low_ms=0.0,
        high_ms=each,
        evidence=(
            EvidenceRow(kind="figure", name=name, ms=each, calls=1.0, place=first.place),
            EvidenceRow(kind="figure", name=IN_STEPS, ms=each, calls=float(len(theirs)), value=float(len(own))),
            *(EvidenceRow(kind="figure", name=AT_STEP, value=float(place)) for place in at[:_FEW]),
        ),
        remedy=Remedy(cure="collect_less" if collects else "do_less_often"),
        backed="measured",
    )


def _is_no_time_of_the_job_s(one: Finding, found: RecurringSteps, analysis: RunAnalysis) -> bool:
    """Tell whether their rank's host seems to be held up in the profiled steps, and the job's own have none of that.

    After one of them a host of a device has no lead, which recording keeps it from gaining again: what else holds it up
    then shows. The job's own steps between are shorter than the profiled ones without recording by as much.
    """
    told = analysis.as_run
    if one.code not in _OF_ONE_RANK or one.rank is None or one.rank != found.rank or analysis.activity != "gpu":
        return False
    if is_late(one) or is_of_steady_steps(one) or told is None or told.step_ms is None or not one.ms:
        return False
    return told.step_ms - found.usual_ms >= _MOST_OF_IT * one.ms


def _is_late_by_them(one: Finding, found: RecurringSteps) -> bool:
    """Tell whether a rank is late by all steps, for a reason that no window shows, and most of that is theirs."""
    unknown = one.code == "unsteady" and is_late(one) and one.rank is not None and one.rank == found.rank
    return unknown and found.mean_ms >= _MOST_OF_IT * (one.ms or 0.0)


def _is_their_time(one: Finding, found: RecurringSteps, analysis: RunAnalysis) -> bool:
    """Tell whether a rank is late in the profiled steps that recur, and in the others by chance or hardly at all."""
    if one.code not in _OF_ONE_RANK or one.rank is None or one.ranks or found.rank not in (one.rank, None):
        return False
    if is_certain(one) or is_late(one) or is_of_steady_steps(one):
        return False
    by_step: dict[int, dict[int, float]] = {}
    for split in analysis.steps:
        by_step.setdefault(split.step, {})[split.rank] = split.by_itself_ms
    later = {
        step: own[one.rank] - statistics.median(ms for rank, ms in own.items() if rank != one.rank)
        for step, own in by_step.items()
        if one.rank in own and len(own) > 1
    }
    theirs = [ms for step, ms in later.items() if found.begins_in(step)]
    others = [ms for step, ms in later.items() if not found.begins_in(step)]
    if not theirs or len(others) < 2:
        return False
    if not found.longer_ms / _AS_LONG <= statistics.fmean(theirs) <= found.longer_ms * _AS_LONG:
        return False
    if sum(theirs) < _MOST_OF_IT * sum(later.values()):
        return False
    # of steps that differ by little, a little is beyond chance, and yet no more than the finding's own bounds tell
    little = is_within_noise(one) and is_trifle_on_cpus(statistics.fmean(others), mean_step_ms(analysis, "window"))
    return little or not is_beyond_chance(others)
