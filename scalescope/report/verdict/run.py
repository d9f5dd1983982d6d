"""A run's answer in plain sentences: what costs its step most, where the rest goes, what to do. Pure functions."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from scalescope.report.advice.first import PROFILE_ALL, best_advice, which_ranks
from scalescope.report.as_run.given import beside_what_is_allowed, contradiction, instead_of_its_own, not_reached
from scalescope.report.as_run.shown import is_likely, name_of_shown, step_of_job
from scalescope.report.drawing.numbers import (
    capitalized,
    listing,
    milliseconds,
    percent,
    rank_names,
)
from scalescope.report.drawing.parts import Part
from scalescope.report.panels.compute_lines import on_cores_clause
from scalescope.report.panels.lost import lost_clause
from scalescope.report.replayed import fewer_steps_sentence
from scalescope.report.sentences import (
    Level,
    Verdict,
    level_of,
)
from scalescope.report.shares import EXPOSED_COMMUNICATION
from scalescope.report.steadiness import longer_recorded_sentences, uneven_sentence
from scalescope.report.text import findings as finding_text
from scalescope.report.text.growing import growing_advice, growing_clause
from scalescope.report.text.longer import longer_sentence, usual_sentences
from scalescope.report.text.mixed import mixed_sentence
from scalescope.report.text.of_step import PROFILED, step_named
from scalescope.report.text.recurring import (
    as_costly_sentence,
    beside_recurring,
    is_told,
    left_of_shown,
    recorded_sentence,
    recurring_advice,
    recurring_clause,
    recurring_sentence,
)
from scalescope.report.text.unexplained import unexplained_loss
from scalescope.report.verdict.against import (
    add_lost,
    add_none_such,
    add_of_lost,
    come_sentences,
    has_a_cause_of_its_own,
    recurs_sentences,
)
from scalescope.report.verdict.level import LossOfStep, left_of_step, loss_of, worse
from scalescope.report.verdict.notes import (
    cautions_of,
    quality_sentences,
    rare_sentences,
    slowed_sentences,
    straggler_sentences,
    throughput_sentences,
    untold_sentences,
    window_sentences,
)
from scalescope.report.verdict.stepless import remedy_for, stepless_verdict
from scalescope.report.verdict.told import Told
from scalescope.report.verdict.why_unsteady import cause_of_unsteadiness, why_one_is_unsteady
from scalescope.report.views import (
    lacking_ranks,
    run_label,
    spoken_of,
)
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.of_job import is_of_other_length
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.kinds import is_of_steady_steps
from scalescope.scaling.finding.order import weight
from scalescope.scaling.findings.of_rows.recurring import cost_as_much, lead_before_launching, leads
from scalescope.scaling.verdicts.step_rows.doubt import (
    is_doubtful,
    leaves_nothing_to_doubt,
    longer_for_long_ones_ms,
    makes_steps_differ,
    was_unsteady,
)

#: Of which steps it is told how they compare, where some are longer every so often, and where they grow.
_OF_STEPS = {True: "Between the longer steps", False: "In the median of all its steps"}
#: What is said of a cause that is sure, beside an unsteady machine.
_SURE_ALL_THE_SAME = (
    "The machine was unsteady, which does not make this cause; in other steps it may cost more or less."
)
_BY_TURNS = "Steps differ, as they do where threads take turns on cores; in other steps it may cost more or less."
_NOTHING_ALL_THE_SAME = "The machine was unsteady: steps differ by more than anything that was found costs."
#: What cannot be split into wait and transfer is partly transfer, and no loss: so many times a finding it comes first.
_OUTWEIGHS = 2.5


def run_verdict(run: RunAnalysis) -> Verdict:
    """Return what one run's traces say: what costs its step most, where the rest of it goes, and what to do.

    Of a folder that mixes windows or jobs that comes first.
    """
    stepless = run.steps_by is None and run.ranks and run.quality.verdict != "unusable"
    own = stepless_verdict(run) if stepless else _step_verdict(run)
    own = replace(own, sentences=(*untold_sentences(run), *slowed_sentences(run), *own.sentences))
    whose = run_label(run) + spoken_of(run)
    if run.quality.mixed is None:
        return replace(own, headline=f"{whose}: {own.headline}", whose=whose)
    lacks = bool(lacking_ranks(run))
    return replace(
        own,
        level="unknown",
        headline=f"{whose}: {mixed_sentence(run.quality.mixed, lacks_ranks=lacks)}",
        sentences=(f"By itself: {own.headline}", *own.sentences),
        advice=f"{PROFILE_ALL.format(which=which_ranks(run))}." if lacks else own.advice,
        begins_on=None if lacks else own.begins_on,
        whose=whose,
    )


def _step_verdict(run: RunAnalysis) -> Verdict:
    """Return what a run's steps tell, without whose they are."""
    knows = run.ranks and run.quality.verdict != "unusable"
    told = _of_parts(run) if knows else _without_parts(run)
    notes = throughput_sentences(run)
    notes += [fewer] if (fewer := fewer_steps_sentence(run)) else []
    notes += window_sentences(run)
    beside = finding_text.doubtful_above(run.findings) if run.findings else None
    besides = finding_text.beside_waits(run.findings)
    said = [*run.findings[:1], *(one for one in (beside, besides) if one is not None)]
    notes += straggler_sentences(run, said)
    notes += quality_sentences(run)
    return Verdict(
        run_label(run),
        told.level,
        told.headline,
        tuple(told.explained),
        told.advice,
        tuple(notes),
        (
            *(one for one in (why_one_is_unsteady(run), longer_recorded_sentences(run)) if one in told.explained),
            *cautions_of([run]),
        ),
        told.begins_on,
        is_beside=told.is_beside,
    )


def _of_parts(run: RunAnalysis) -> Told:
    """Return what is told of a run whose traces say where its time goes."""
    loss = loss_of(run)
    unseen = _unseen_wait(run, loss.lost)
    if run.findings and not (unseen and _is_outweighed(run.findings[0], loss.lost[0][1])):
        unseen = ""
        told = _by_findings(run, loss)
    else:
        told = _by_parts(run, loss, unseen)
    _add_windows(run, told)
    unprofiled = bool(run.lost) and run.lost[0].from_measured_ms is not None
    if not unprofiled:
        add_lost(run, told, loss)
    doubt = _add_doubt(run, told)
    apart = unprofiled and (run.growing is not None or (run.recurring is not None and leads(run)))
    if unprofiled and not apart:  # how steps without a profiler compare is in no doubt for the profiled ones
        add_lost(run, told, loss)
    elif apart and has_a_cause_of_its_own(run, told):
        add_none_such(run, told)
    elif apart:
        told.explained[:0] = come_sentences(run)
    _add_rows(run, told, doubt=doubt)
    if apart:  # … nor is it of these, of which all is but what rows tell
        told.explained.insert(1, f"{_OF_STEPS[run.growing is None]} {lost_clause(run)}.")
        told.explained[1:1] = [] if run.recurring is not None and leads(run) else recurs_sentences(run)
        add_of_lost(run, told)
    if lengths := step_of_job(run):  # behind the cause, and next to the table, which is of those steps
        told.explained.append(lengths)
    _add_advice(run, told, loss, unseen=bool(unseen))
    return told


def _which(run: RunAnalysis) -> str:
    """Return what the step is called whose parts are told where another one's length is, too; else ""."""
    if step_of_job(run):
        # a part that is longer than the job's own step is told beside the length of the one that has it
        return name_of_shown(run) if _is_beyond_the_job_s(run) else PROFILED
    return name_of_shown(run) if run.recurring is not None and leads(run) else ""


def _is_beyond_the_job_s(run: RunAnalysis) -> bool:
    """Tell whether what costs the profiled step most is for sure more than the job's own step takes."""
    own = run.step_times.measured_step_ms if run.step_times is not None else None
    return own is not None and any(one.at_least and (one.ms or 0.0) >= own for one in run.findings[:1])


def _which_parts(run: RunAnalysis) -> str:
    """Return what the step is called that parts are told of: that of those that have their length."""
    return _which(run) or PROFILED * is_of_other_length(run.as_run)


def _by_share(run: RunAnalysis, loss: LossOfStep) -> bool:
    """Tell whether parts are told by their shares alone: they are of steps of another length than the one that is told,
    and in ms of that one would be other figures than those of the table, and of the cause that is told before."""
    return _which_parts(run) == PROFILED or loss.reads_otherwise


def _share_of_compute(run: RunAnalysis, loss: LossOfStep, ms: str = "") -> str:
    """`ms`: how long that is, where the other parts are told in ms behind it."""
    which = _which_parts(run)
    share = f"{percent(loss.compute)} of the {step_named(loss.told_ms, which)} is compute{ms}{on_cores_clause(run)}"
    return f"If recording costs what it usually does, {share}" if is_likely(run) and run.findings else share


def _by_findings(run: RunAnalysis, loss: LossOfStep) -> Told:
    """Return what is told first where findings say what costs the step."""
    by_share = _by_share(run, loss)
    found = loss.parts(by_share=by_share)
    in_ms = f", {loss.in_words(loss.compute_ms, by_share=False)}"  # as the other parts are told
    share = _share_of_compute(run, loss, in_ms if found and not by_share else "")
    shares = f"{share}; {listing(found)}." if found else f"{share}."
    which = _which(run)
    ranks = run.world_size
    lead_of = partial(finding_text.headline_of_all, run.findings, loss.told_ms, ranks, shares, which=which, run=run)
    first = lead_of()
    lacks = run.quality.lossy_ranks or run.quality.incomplete_ranks  # what seems to be idle may be what is missing
    lead = (
        "" if first.is_otherwise or lacks else unexplained_loss(run, loss.step_ms, loss.compute, loss.lost, which=which)
    )
    explained = [] if first.is_otherwise else [shares]
    explained += [first.doubtful] if first.doubtful else rare_sentences(run)
    unexplained = lead or first.is_otherwise
    recurs_ms = longer_for_long_ones_ms(run) if is_told(run) else 0.0  # … and has its cause
    level: Level = level_of(loss.compute if unexplained else left_of_step(run, loss, recurs_ms))
    if run.findings[0].ms is not None:  # what is named is not all that is lost; where nothing is wrong, none of it is
        level = worse(level, "good" if level_of(loss.compute) == "good" else "fair")
    if run.findings[0].code == "profiler_cost":
        level = "unknown"
    return Told(
        level,
        f"{lead}{first.text}",
        explained,
        has_lead=bool(lead),
        first=lambda of_it: f"{lead}{lead_of(of_it=of_it).text}",
    )


def _by_parts(run: RunAnalysis, loss: LossOfStep, unseen: str) -> Told:
    """Return what is told first where nothing is found, or where that is little beside what may be `unseen`."""
    by_share = _by_share(run, loss)
    found = loss.parts(by_share=by_share)
    explained = [f"That is {listing(found)}."] if found else []
    beside = [finding_text.line(one, run) for one in run.findings[:1] if one.ms is not None]
    explained += [f"What these traces tell: {one}." for one in beside]
    rest = unseen or f"{loss.in_words(loss.ms, by_share=by_share)} {'is' if by_share else 'are'} not."
    level: Level = "unknown" if unseen else level_of(loss.compute)
    return Told(level, f"{_share_of_compute(run, loss)}; {rest}", explained)


def _add_windows(run: RunAnalysis, told: Told) -> None:
    """Say that the steps had become longer, or that some are so now and then."""
    if run.longer is not None:
        told.headline = f"{longer_sentence(run.longer)} {told.headline}"
        told.explained += usual_sentences(run)
    if run.recurring is None or not is_told(run) or leads(run):
        return
    if cost_as_much(run) and not is_doubtful(run):
        told.besides = as_costly_sentence(run.recurring)
        told.headline = f"{told.headline} {told.besides}"
        told.explained += filter(None, [recorded_sentence(run, run.recurring)])
    else:
        told.explained.append(recurring_sentence(run, run.recurring))


def _add_doubt(run: RunAnalysis, told: Told) -> bool:
    """Say what makes all of it doubtful; return whether the machine was unsteady, which then comes first."""
    doubt = False
    if near := beside_what_is_allowed(run):
        told.explained.append(near)
    against = "" if near else contradiction(run)
    if against and run.as_run is not None and run.as_run.untraced_by == "given":
        told.level = "unknown"  # all that is said of the step as run rests on what was given
        told.explained.insert(0, f"By the traces: {told.headline}")
        told.headline = against
    elif doubt := is_doubtful(run):
        told.level = "unknown"
        cause = cause_of_unsteadiness([run])
        told.headline = f"{cause}. Of the profiled steps alone: {told.headline}"
        told.explained[:0] = [one for one in (why_one_is_unsteady(run), capitalized(against)) if one]
    elif longer := longer_recorded_sentences(run):
        told.explained.insert(0, longer)
    elif was_unsteady(run):
        sure = _BY_TURNS if any(map(makes_steps_differ, run.findings[:1])) else _SURE_ALL_THE_SAME
        told.explained.insert(0, _NOTHING_ALL_THE_SAME if leaves_nothing_to_doubt(run) else sure)
        told.explained += [capitalized(against)] if against else []
    elif against or (against := not_reached(run)):
        told.explained.append(capitalized(against))
    if uneven := uneven_sentence(run):
        told.explained.insert(0, uneven)
    if instead := instead_of_its_own(run):
        told.explained.insert(0, instead)
    odd = run.unpriced is not None and run.unpriced.code == "other_steps"
    lacks = run.quality.lossy_ranks or run.quality.incomplete_ranks
    if odd or run.quality.unknown_collectives or lacks or run.quality.several_devices:
        told.level = "unknown"
    return doubt


def _add_rows(run: RunAnalysis, told: Told, *, doubt: bool) -> None:
    """Put first what all steps tell, where the profiled ones are not like them."""
    if run.recurring is not None and leads(run):
        told.level = worse(told.level, level_of(left_of_shown(run.recurring)))  # of all steps, whatever those few hold
        recorded = recorded_sentence(run, run.recurring, "such a one")
        whole = capitalized(told.headline) if doubt else _of_the_profiled(run, told.headline)
        beside = "" if lead_before_launching(run) and not doubt else beside_recurring(run) or whole
        told.explained.insert(0, f"{recorded} {beside}".strip())
        told.headline = " ".join([f"{recurring_clause(run.recurring)}.", *recurs_sentences(run)])
    if run.growing is not None:
        told.level = level_of(run.growing.from_ms / run.growing.to_ms) if run.growing.to_ms else "unknown"
        of_steps = not doubt and (run.recurring is None or not leads(run)) and run.growing.known_by == "rows"
        told.explained.insert(0, f"Of the profiled steps: {told.headline}" if of_steps else capitalized(told.headline))
        told.headline = f"{growing_clause(run.growing)}."


def _of_the_profiled(run: RunAnalysis, told: str) -> str:
    """Return what is told of the profiled steps, behind what all of them tell: of which steps it is, once."""
    return f"Beside that, {told}" if _which(run) == PROFILED else f"Of the profiled steps: {told}"


def _add_advice(run: RunAnalysis, told: Told, loss: LossOfStep, *, unseen: bool) -> None:
    advice = f"{remedy_for(loss.lost[0][0], run)}." if loss.lost and 1 - loss.compute > 0.02 else ""
    best = best_advice(run, advice, unseen)
    beyond = told.has_lead and advice and not best.is_remedy
    advice = f"{advice.removesuffix('.')}; beyond that, {best.text}" if beyond else best.text
    whole = not beyond
    if run.recurring is not None and leads(run):
        whole = False
        own = f"{recurring_advice(run.recurring)}."
        advice = own if lead_before_launching(run) and not beyond else f"{own} Of the profiled steps: {advice}"
    if run.growing is not None:
        whole = False
        advice = f"{growing_advice(run.growing)}. Of the profiled steps: {advice}"
    told.advice = advice
    told.begins_on = best.on_rank if whole else None  # else something of all ranks comes before


def _without_parts(run: RunAnalysis) -> Told:
    """Return what is told of a run whose traces do not say where its time goes: what its rows tell."""
    explained: list[str] = []
    told = advice = ""
    begins_on: int | None = None
    level: Level = "unknown"
    if run.findings and is_of_steady_steps(run.findings[0]):
        told = finding_text.headline(run.findings[0], 0.0, run.world_size, run=run)
        best = best_advice(run, "", False)
        advice, begins_on = best.text, best.on_rank
    if run.recurring is not None and is_told(run):
        if leads(run):
            told, advice = f"{recurring_clause(run.recurring)}.", f"{recurring_advice(run.recurring)}."
            begins_on, level = None, level_of(left_of_shown(run.recurring))
        else:
            explained.append(recurring_sentence(run, run.recurring))
    if run.growing is not None:
        explained[:0] = [capitalized(told)] if told else []
        told, advice = f"{growing_clause(run.growing)}.", f"{growing_advice(run.growing)}."
        begins_on = None
    if not told and run.quality.unprofiled:
        told = f"nothing tells where its time goes: {run.quality.reasons[0]}."
    headline = told or "the traces do not say where its time goes."
    return Told(level, headline, explained, advice, begins_on=begins_on)


def _is_outweighed(finding: Finding, unsplit_ms: float) -> bool:
    """Tell whether far more may be waiting for ranks without a trace than the costliest finding comes to."""
    return finding.ms is not None and unsplit_ms > _OUTWEIGHS * weight(finding)


def _unseen_wait(run: RunAnalysis, lost: Sequence[tuple[Part, float]]) -> str:
    """Return what is most of what a step loses, where that may be waiting for ranks without a trace; else ""."""
    lacking = lacking_ranks(run)
    if not lacking or not lost or lost[0][0].key != "exposed_unsplit":
        return ""
    # split or not: with a rank whose trace is cut off it is split in the steps that are left of it
    spent = milliseconds(sum(ms for part, ms in lost if part.key in EXPOSED_COMMUNICATION))
    return f"{spent} are communication; whether ranks wait for {rank_names(lacking)} in it, these traces cannot tell."
