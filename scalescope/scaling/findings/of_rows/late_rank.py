"""What a job's own rows say of the rank that the others wait for, where a window of a few steps sizes it by chance."""

import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.records.steps.annotations import LOADING
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import Split
from scalescope.scaling.answer_steps import LateInSteps
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.finding.codes import Code, Cure
from scalescope.scaling.finding.figures import (
    AT_LEAST,
    AT_STEP,
    HOST_SLOWED,
    IN_STEPS,
    INPUTS,
    LATE,
    LATE_RANK,
    LOADED,
    LOCK_WAITS,
    NO_TRACE,
    NOT_IN_STEPS,
    STEADY_STEPS,
)
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy, ranks_of
from scalescope.scaling.finding.kinds import (
    dearer_precision_ms,
    is_certain,
    is_now_and_then,
    is_of_profiled_steps,
    is_of_steady_steps,
    is_within_noise,
)
from scalescope.scaling.finding.order import ranked, stood_ms, weight
from scalescope.scaling.findings.shares import bounded_means

#: A finding is why a rank is late where it is so much of all that is found of that rank.
_EXPLAINED = 0.6
#: What a rank computes longer: of ranks that compute on cores all steps tell by how much the step would be shorter.
_COMPUTES: tuple[Code, ...] = ("own_work", "more_work", "slower_compute")
#: What holds a rank's host up, and is no launching; and of a rank's lateness, what launching makes too much of it.
_HOLDS_UP: tuple[Code, ...] = ("host_stall", "host_starved", "synchronising", "allocation", "recompilation")
_LAUNCHING = 0.2
#: Where hosts compute, a rank that is late by less than this share of the step, for no reason that its window shows, is
#: nobody's fault: of undisturbed runs on two cores, that loaders and launchers use as well, one was late by 5%.
_LITTLE_UNTOLD = 0.08


def with_late_rank(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return the findings with what makes a late rank late sized by all steps, and a late rank that none names."""
    late = analysis.step_times.late if analysis.step_times is not None else None
    # a pipeline's stages wait for the first of them by their schedule, which only traces tell
    if late is None or analysis.pipelines or not analysis.ranks:
        return list(findings)
    findings = [_of_its_rank(one, late) for one in findings]
    named = [one for one in findings if late.rank in ranks_of(one) and one.ms is not None]
    if any(one.ranks or one.also_late is not None for one in named):
        return list(findings)  # rows tell by how much one rank is later than the next one, which is late as well
    if _launches_last(late, named, analysis):
        return list(findings)
    shown = next((one for one in named if _is_shown(one)), None)
    if shown is not None and weight(shown) >= _EXPLAINED * sum(map(weight, named)):
        return _with_sized(findings, shown, late, analysis)
    loading = next((one for one in named if one.code == "data_loading"), None)
    whole = sum(weight(one) for one in named)
    if loading is not None and weight(loading) >= _EXPLAINED * whole and not _agree(loading, late):
        return _with_sized(findings, loading, late, analysis)
    sure = [one for one in named if not is_within_noise(one) or is_certain(one)]
    known = next((one for one in sure if _is_better_known(late, one, analysis)), None)
    if known is not None and weight(known) >= _EXPLAINED * sum(map(weight, sure)):
        return _with_sized(findings, known, late, analysis)
    # hosts that compute are late as well for what others do on their cores: that must be known to be left out
    if any(not is_within_noise(one) for one in named) or (analysis.activity == "cpu" and not late.delays_known):
        return _as_far_as_all_steps(findings, sure, late, analysis)
    known = next((one for one in named if is_certain(one) and weight(one) >= _EXPLAINED * whole), None)
    if known is not None and _comes_to(known, late):
        return _with_sized(findings, known, late, analysis)
    still = next((one for one in named if _stands_still(one, late)), None)
    if still is not None:
        return _with_sized(findings, still, late, analysis)
    if _is_contradicted(late, analysis):
        return list(findings)
    found = _of_window(late, analysis)
    if analysis.activity == "cpu" and _is_untold(found) and late.ms < _LITTLE_UNTOLD * late.mean_step_ms:
        return list(findings)
    unpriced = [one for one in findings if one.ms is None and one.code != "nothing"]
    priced = [one for one in findings if one.ms is not None and not (one.code == "unsteady" and one.rank is None)]
    return [*ranked([found, *priced]), *unpriced]


def _with_sized(
    findings: Sequence[Finding], finding: Finding, late: LateInSteps, analysis: RunAnalysis
) -> list[Finding]:
    sized = _sized(finding, late, analysis)
    return ranked([sized if one is finding else one for one in findings])


def _of_its_rank(finding: Finding, late: LateInSteps) -> Finding:
    """Return a finding of longer steps as that of the late rank whose they are, though of no kind that accuses it: all
    steps tell that it is late, and the window in what.
    """
    whose = next((row.value for row in finding.evidence if row.name == LATE_RANK), None)
    told = finding.code == "unsteady" and finding.rank is None and is_of_profiled_steps(finding)
    slowed = any(row.name in (HOST_SLOWED, NOT_IN_STEPS) for row in finding.evidence)
    return replace(finding, rank=late.rank) if told and whose == late.rank and not slowed else finding


def _is_shown(finding: Finding) -> bool:
    """Tell whether the window shows in some of its steps what a late rank does longer: it computes as many operators.

    All steps tell what that costs, of which a window holds now more and now fewer.
    """
    if not is_of_profiled_steps(finding):
        return False
    return finding.code == "unsteady" or (finding.code in _COMPUTES and is_certain(finding))


def _is_better_known(late: LateInSteps, finding: Finding, analysis: RunAnalysis) -> bool:
    """Tell whether what a rank's cause costs, that is there for sure, all steps tell more closely than the window's.

    Of ranks that compute on cores which others use, too: a few steps are as they happened to be disturbed.
    """
    ms, low, high = finding.ms, finding.low_ms, finding.high_ms
    if analysis.activity != "cpu" or not late.delays_known or not ms or low is None or high is None:
        return False
    if finding.at_most or is_now_and_then(finding):
        return False
    all_ms, all_low, all_high = _cost(late, finding, analysis)
    if finding.code in _COMPUTES:
        seen_ms = _seen_ms(finding, analysis)
    elif _stands_still(finding, late) and not is_within_noise(finding):
        seen_ms = stood_ms(finding)
    elif (seen_ms := _locked_ms(finding, analysis)) <= 0:
        return False
    if low <= all_high and all_low <= high:
        return all_low > 0 and (all_high - all_low) / all_ms < (high - low) / ms
    return all_low > 0 and seen_ms >= _EXPLAINED * late.ms


def _seen_ms(finding: Finding, analysis: RunAnalysis) -> float:
    """Return for how long a rank may compute beyond the others by what it is given, whatever its few steps cost.

    By what it alone runs, by what it computes in a dearer precision, by so many times the others' data, or by products
    that take so many times as long at least; 0 where none of these tells.
    """
    if (dearer_ms := dearer_precision_ms(finding.evidence)) is not None:
        return dearer_ms
    if finding.code == "own_work":
        return next((one.ms for one in finding.evidence if one.ms is not None), 0.0)
    times = next((one.value for one in finding.evidence if one.name in (INPUTS, AT_LEAST) and one.value), None)
    others = [one.compute_ms for one in bounded_means(analysis) if one.rank != finding.rank]
    return (times - 1) * statistics.median(others) if times is not None and others else 0.0


def _locked_ms(finding: Finding, analysis: RunAnalysis) -> float:
    """Return for how long a rank's host waits for the interpreter's lock, ms a step; 0 where something else makes up
    for most of what the rank does beyond the others in the profiled steps.
    """
    waits_ms = next((row.ms for row in finding.evidence if row.name == LOCK_WAITS and row.ms is not None), 0.0)
    steps = bounded_means(analysis)
    mine = next((one for one in steps if one.rank == finding.rank), None)
    others = [_own_ms(one) for one in steps if one.rank != finding.rank]
    later_ms = _own_ms(mine) - max(others) if mine is not None and others else 0.0
    return waits_ms if 0 < _EXPLAINED * later_ms <= waits_ms else 0.0


def _cost(late: LateInSteps, finding: Finding, analysis: RunAnalysis) -> tuple[float, float, float]:
    """Return what all steps say that a cause costs, with its interval, ms.

    Longer compute becomes as long as the others'; what waits behind a host that stands still, or loads, goes with that,
    as all that some steps compute longer does, which those beside them have none of.
    """
    saved, low, high = late.saved_ms, late.saved_low_ms, late.saved_high_ms
    told = analysis.activity == "cpu" and late.delays_known
    if (
        told
        and finding.code in _COMPUTES
        and not is_of_profiled_steps(finding)
        and saved is not None
        and low is not None
        and high is not None
    ):
        return saved, low, high
    return late.ms, late.low_ms, late.high_ms


def _launches_last(late: LateInSteps, named: Sequence[Finding], analysis: RunAnalysis) -> bool:
    """Tell whether a rank's device waits for what its host launches, beyond what is known to hold that host up.

    Where hosts bound a step one of them is the last, by a little. The other ones' devices wait for it, and their hosts
    get ahead of these, until what they launch takes no longer than their devices do for it: by its rows the last one is
    late by all that launching takes it, though without it the next host would be the last. Of a healthy job of 8 ms of
    two H100s *rank 1 costs 4.6 ms* was told, of others 6 to 16, of one rank or the other.
    """
    if analysis.activity != "gpu":
        return False
    mine = next((one for one in step_as_run(analysis)[1] if one.rank == late.rank), None)
    if mine is None:
        return False
    known_ms = sum(weight(one) for one in named if one.code in _HOLDS_UP)
    return mine.idle_launch_ms - known_ms >= _LAUNCHING * late.ms


def _is_contradicted(late: LateInSteps, analysis: RunAnalysis) -> bool:
    """Tell whether in the profiled steps another rank takes longer, by as much: then it is one's turn, then another's.

    A rank that no window shows a cause of is named by its lateness alone; that must not be there the other way round.
    """
    steps = bounded_means(analysis)
    mine = next((one for one in steps if one.rank == late.rank), None)
    others = [_own_ms(one) for one in steps if one.rank != late.rank]
    return mine is not None and bool(others) and max(others) - _own_ms(mine) > late.ms


def _comes_to(finding: Finding, late: LateInSteps) -> bool:
    """Tell whether what is there for sure may be all that the rank is late by, as far as the window's noise tells."""
    ms = finding.ms or 0.0
    return _EXPLAINED * late.ms <= ms and finding.high_ms is not None and late.low_ms <= finding.high_ms


def _stands_still(finding: Finding, late: LateInSteps) -> bool:
    """Tell whether in every profiled step the rank's host stands still for about what it is late by in all others.

    Two measurements that know nothing of each other: of a few steps the one, whose noise hides the cost, of all the
    other.
    """
    if finding.code != "host_stall" or is_now_and_then(finding):
        return False
    return _EXPLAINED * late.ms <= stood_ms(finding) <= late.ms / _EXPLAINED


def _as_far_as_all_steps(
    findings: Sequence[Finding], sure: Sequence[Finding], late: LateInSteps, analysis: RunAnalysis
) -> list[Finding]:
    """Return findings with the costliest of a late rank's as uncertain as all steps contradict what its window says.

    Not where what is seen of it cannot be all that the rank is late by: then something else makes up for the rest.
    """
    priced = [one for one in sure if not one.at_most and not one.at_least and not is_now_and_then(one)]
    if analysis.activity != "cpu" or not late.delays_known or not priced:
        return list(findings)
    first = max(priced, key=weight)
    all_ms, all_low, all_high = _cost(late, first, analysis)
    beside = sum(one.ms or 0.0 for one in sure if one is not first)
    ms, low, high = first.ms or 0.0, first.low_ms or 0.0, first.high_ms or 0.0
    if all_low > high + beside and not 0 < _seen_ms(first, analysis) < _EXPLAINED * all_ms:
        wider = replace(first, high_ms=all_high - beside)
    elif all_high < low + beside:
        wider = replace(first, low_ms=min(ms, max(0.0, all_low - beside)))
    else:
        return list(findings)
    return ranked([wider if one is first else one for one in findings])


def _agree(loading: Finding, late: LateInSteps) -> bool:
    """Tell whether the window came to the same, and no less surely."""
    low, high = loading.low_ms, loading.high_ms
    if low is None or high is None or is_within_noise(loading) or loading.at_most:
        return False
    return low <= late.ms <= high and high - low <= late.high_ms - late.low_ms


def _sized(finding: Finding, late: LateInSteps, analysis: RunAnalysis) -> Finding:
    # in how many steps of a window it is there says nothing beside what all steps cost
    kept = is_of_steady_steps(finding) or is_of_profiled_steps(finding)
    told = (LATE, STEADY_STEPS) if kept else (LATE, STEADY_STEPS, IN_STEPS, AT_STEP)
    evidence = (*(one for one in finding.evidence if one.name not in told), *_evidence(late))
    ms, low, high = _cost(late, finding, analysis)
    if is_of_profiled_steps(finding):
        # its steps are some of the job's as well: what they cost may be as much as either of both tells
        low, high = min(low, finding.low_ms or 0.0), max(high, finding.high_ms or 0.0)
    return replace(
        finding,
        ms=ms,
        low_ms=low,
        high_ms=high,
        fraction=ms / late.mean_step_ms,
        evidence=evidence,
        backed="measured",
        at_most=False,
        at_least=False,
    )


def _of_window(late: LateInSteps, analysis: RunAnalysis) -> Finding:
    """Return the finding of a late rank that no other names: it loads, where that is what its window has it do."""
    loading = _loading_ms(late.rank, analysis)
    own = () if loading is None else (EvidenceRow(kind="annotation", name=LOADING, ms=loading),)
    if loading is None and (told := _loading_by_rows(late, analysis)) is not None:
        loading, own = told.ms, (told,)
    code: Code = "unsteady" if loading is None else "data_loading"
    cure: Cure = "profile_longer" if loading is None else "load_ahead"
    if late.rank not in {one.rank for one in analysis.ranks}:
        own, cure = (EvidenceRow(kind="figure", name=NO_TRACE),), "profile_rank"
    if loading is None and late.times_the_samples is not None:
        code, cure = "more_work", "even_out"
        own = (EvidenceRow(kind="figure", name=INPUTS, value=late.times_the_samples),)
    return Finding(
        code=code,
        rank=late.rank,
        ms=late.ms,
        low_ms=late.low_ms,
        high_ms=late.high_ms,
        fraction=late.ms / late.mean_step_ms,
        evidence=(*own, *_evidence(late)),
        remedy=Remedy(cure=cure),
        backed="measured",
    )


def _is_untold(finding: Finding) -> bool:
    """Tell whether it names a rank alone, and neither what it does nor that it was not recorded."""
    return finding.code == "unsteady" and finding.remedy is not None and finding.remedy.cure == "profile_longer"


def _loading_ms(rank: int, analysis: RunAnalysis) -> float | None:
    """Return what a rank loads for in a profiled step where that is most of what it does longer than the others."""
    steps = bounded_means(analysis)
    mine = next((one for one in steps if one.rank == rank), None)
    others = [one for one in steps if one.rank != rank]
    if mine is None or not others:
        return None
    loads = mine.idle_data_ms - max(one.idle_data_ms for one in others)
    later = _own_ms(mine) - max(_own_ms(one) for one in others)
    return mine.idle_data_ms if loads >= _EXPLAINED * later > 0 else None


def _loading_by_rows(late: LateInSteps, analysis: RunAnalysis) -> EvidenceRow | None:
    """Return what a rank loads for in all steps where that is most of what it is late by, whatever its window shows."""
    loading = analysis.step_times.loading if analysis.step_times is not None else None
    if loading is None or not 0 <= late.rank < len(loading.by_rank_ms) or len(loading.by_rank_ms) < 2:
        return None
    mine = loading.by_rank_ms[late.rank]
    others = max(ms for rank, ms in enumerate(loading.by_rank_ms) if rank != late.rank)
    if mine - others < _EXPLAINED * late.ms:
        return None
    return EvidenceRow(kind="figure", name=LOADED, ms=mine, others_ms=others, value=float(loading.steps))


def _own_ms(step: Split) -> float:
    """Return what a rank does in a step, and does not wait for."""
    return step.window_ms - step.exposed_wait_ms - step.exposed_unsplit_ms


def _evidence(late: LateInSteps) -> tuple[EvidenceRow, EvidenceRow]:
    return (
        EvidenceRow(kind="figure", name=LATE, ms=late.ms, value=float(late.steps)),
        EvidenceRow(kind="figure", name=STEADY_STEPS, ms=late.mean_step_ms),
    )
