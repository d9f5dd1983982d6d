"""A study's answers in plain sentences: a verdict a series, by its throughput and its waterfall. Pure functions."""

import dataclasses
from collections.abc import Sequence

from scalescope.records.rows import SweepRow
from scalescope.report.advice.first import first_of_series, is_untold_loss, remedy_of_growth
from scalescope.report.advice.unsteady import (
    in_more_windows,
    is_unsteady_series,
    may_be_nothing,
    measure_again,
    unsteady_ends,
)
from scalescope.report.drawing.numbers import (
    capitalized,
    factor,
    milliseconds,
    percent,
    rate,
)
from scalescope.report.panels.insitu import in_situ_sentence
from scalescope.report.panels.projection import expectation_sentence
from scalescope.report.sentences import (
    PERFECT,
    UNSTEADY,
    WORTH_SAYING,
    Level,
    Verdict,
    joined,
    level_of,
    loss_sentence,
    sentence,
    sweep_verdict,
)
from scalescope.report.text.again import command_again
from scalescope.report.text.scaling.efficiency import efficiency_text
from scalescope.report.text.scaling.scaling_loss import cuts_clause, cuts_cost_ms, largest_part, loss_clause
from scalescope.report.text.waits.growth import waits_advice, waits_clause, who_has_the_cores
from scalescope.report.verdict.notes import cautions_of, quality_sentences, straggler_sentences, window_sentences
from scalescope.report.verdict.run import run_verdict
from scalescope.report.verdict.why_unsteady import cause_of_unsteadiness, why_unsteady
from scalescope.report.views import (
    activities,
    devices,
    grew_within_noise,
    in_tokens,
    points_of,
    series_names,
    waterfall_steps,
)
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.study_answer import ScalingPoint, StudyAnalysis, Waterfall
from scalescope.scaling.verdicts.growth import measured_growth
from scalescope.scaling.verdicts.step_rows.doubt import was_unsteady

_NO_OTHER = "there is no other count to compare with."


def study_verdicts(
    study: StudyAnalysis, runs: Sequence[RunAnalysis], sweep_rows: Sequence[SweepRow] = ()
) -> list[Verdict]:
    """Return a verdict a series, then one for the sweep where there is one; never an empty list."""
    verdicts = [_series_verdict(study, name, runs) for name in series_names(study)]
    if not verdicts:
        verdicts = [run_verdict(run) for run in runs]
    if sweep_rows:
        verdicts.append(sweep_verdict(sweep_rows))
    why = tuple(sentence(reason) for reason in study.reasons)
    return verdicts or [Verdict(study.name, "unknown", "This study holds no analysed run yet.", why)]


def _series_verdict(study: StudyAnalysis, series: str, runs: Sequence[RunAnalysis]) -> Verdict:
    points = points_of(study, series)
    kinds = activities(runs)
    if not points:
        return Verdict(series, "unknown", f"{series}: no throughput was measured.", ())
    first, last = points[0], points[-1]
    of_series = [run for point in points for run in runs if run.name == point.run]
    kind = kinds.get(last.run)
    if len(points) == 1 and of_series:
        return _of_one_count(study, series, of_series[0])
    sentences: list[str] = []
    notes: list[str] = []
    advice = command = ""
    ends: list[RunAnalysis] = []
    off: list[RunAnalysis] = []
    unsteady = False
    if len(points) == 1:
        does = "does" if last.world_size == 1 else "do"
        headline = f"{devices(last.world_size, kind)} {does} {_throughput(last, points)}; {_NO_OTHER}"
        level: Level = "unknown"
    else:
        of_one = "one" if first.world_size == 1 else devices(first.world_size, kind)
        headline = (
            f"{devices(last.world_size, kind)} do {factor(last.speedup)} the work of {of_one}: "
            f"{efficiency_text(last, of_series)} {last.scaling} scaling efficiency."
        )
        level = level_of(last.efficiency)
        if last.efficiency > PERFECT:
            level = "unknown"
            notes.append(
                "More than perfect scaling means that the smaller run was slower than it need be, or that the machine "
                "had other work: measure again on a quiet machine before believing it."
            )
        falls = [fall for fall in study.waterfall if fall.series == series and fall.to_world_size == last.world_size]
        largest = next((run for run in of_series if run.name == last.run), None)
        unsteady = is_unsteady_series(study, series, runs)
        ends = [run for run in of_series if run.name in (first.run, last.run)]
        if unsteady:
            off = unsteady_ends(ends)
            headline = f"{cause_of_unsteadiness(off)}. {headline}"
            level = "unknown"
            sentences.append(why_unsteady(off))
        if falls and last.scaling == "weak":
            if unsteady and not falls[0].unsteady:  # what was, then, and that the growths agree all the same
                sentences += [told for run in off for told in window_sentences(run)]
                sentences += _agree(falls[0])
            lost = loss_sentence(falls[0])  # what the headline says already is not said again
            sentences.append(capitalized(lost.removeprefix(UNSTEADY)) if unsteady else lost)
            advice = remedy_of_growth(falls[0], of_series)
        elif last.scaling == "strong":
            ideal = first.step_ms * first.world_size / last.world_size
            sentences.append(
                f"A step takes {milliseconds(last.step_ms)} where {milliseconds(ideal)} would be a perfect split "
                f"of {milliseconds(first.step_ms)}."
            )
        else:
            sentences.append("Where the loss goes is not known: there are no analysed traces at both counts.")
        if unsteady:
            advice = _when_unsteady(falls[0] if falls else None, of_series)
        elif largest is not None:
            fall = falls[0] if falls and last.scaling == "weak" else None
            advice = first_of_series(largest, fall, of_series)
            if fall is not None and grew_within_noise(fall) and not is_untold_loss(fall):
                sentences.append(f"To tell, measure {in_more_windows(of_series)}.")
        if unsteady or (falls and grew_within_noise(falls[0])):
            command = command_again(study, series)
        if unsteady and (holds := _holds(ends)):
            sentences.append(holds)
        if last.scaling == "weak" and falls and largest is not None:
            goes_to = _goes_to(last, falls[0], of_series, unsteady=unsteady)
            headline = joined(headline, goes_to) if goes_to else headline
            if falls[0].core_waits is not None:
                headline = f"{headline} {who_has_the_cores(falls[0].core_waits)}"
        if last.samples_per_s is not None:
            notes.append(f"Together they do {_throughput(last, points)}.")
    notes += _outlook_sentences(study, series, of_series)
    if last.mfu is not None:
        notes.append(f"Each reaches {percent(last.mfu)} of its data-sheet peak (MFU).")
    for run in of_series:
        notes += window_sentences(run)
        notes += straggler_sentences(run)
        notes += quality_sentences(run)
    alike = of_series[-1:]
    if not any(map(window_sentences, alike)):
        alike = [run for run in of_series[:1] if was_unsteady(run)]
    cautions = cautions_of(of_series, alike=alike)
    if unsteady:
        cautions = (sentences[0], *cautions)
    notes = [note for note in notes if note not in sentences]
    return Verdict(
        series,
        level,
        f"{series}: {headline}",
        tuple(sentences),
        advice,
        tuple(notes),
        cautions,
        command=command,
        whose=series,
    )


def _agree(fall: Waterfall) -> list[str]:
    """Return that the traced growth is the measured one all the same, where both are known and beyond noise."""
    measured, noise = fall.measured_growth_ms, fall.noise_ms
    if measured is None or noise is None or grew_within_noise(fall) or abs(fall.growth_ms - measured) > noise:
        return []
    return ["Despite that, the profiled step grew as the measured one did, within what such steps differ by."]


def _holds(ends: Sequence[RunAnalysis]) -> str:
    """Return what an unsteady machine leaves known: that the measured step grew, where that is beyond noise."""
    grown = measured_growth(ends[0], ends[-1]) if len(ends) > 1 else None
    if grown is None or grown.low <= 0:
        return ""
    half = grown.high - grown.value
    low, high = milliseconds(grown.low, half), milliseconds(grown.high, half)
    return f"What holds all the same: the measured step did grow, by {low} to {high}."


def _goes_to(last: ScalingPoint, fall: Waterfall, runs: Sequence[RunAnalysis], *, unsteady: bool) -> str:
    """Return what a series' loss goes to, to end its first sentence with: what all steps tell before what few do.

    Of an unsteady machine's profiled steps nothing is said first.
    """
    rows = ""
    if fall.core_waits is not None:
        rows = waits_clause(fall, fall.core_waits, may_be_nothing=may_be_nothing(runs[0], runs[-1]))
    if grew_within_noise(fall) or (unsteady and not rows):
        return rows or _unknown_loss(last, runs, unsteady=unsteady)
    traced = "" if unsteady else _traced(fall)
    return f"{rows}. In the traces {traced}" if rows and traced else rows or traced


def _traced(fall: Waterfall) -> str:
    """Return what most of a growth beyond noise is in the traces; "" where nothing is."""
    steps = waterfall_steps(fall)
    most = largest_part(fall, steps)
    if most is not None:
        return loss_clause(fall, steps, *most)
    cuts_ms = cuts_cost_ms(fall)
    return cuts_clause(fall, cuts_ms) if cuts_ms is not None else ""


def _unknown_loss(last: ScalingPoint, runs: Sequence[RunAnalysis], *, unsteady: bool) -> str:
    """Return that noise hides what a series loses to, where there is a loss to speak of; else ""."""
    if last.efficiency > 1 - WORTH_SAYING:
        return ""
    if may_be_nothing(runs[0], runs[-1]):
        return "within noise the loss may be nothing, and its cause cannot be told"
    if unsteady:
        return "the loss is beyond noise, but its cause cannot be told"
    return "its cause cannot be told: the profiled steps grew by no more than noise"


def _when_unsteady(fall: Waterfall | None, runs: Sequence[RunAnalysis]) -> str:
    """Return what to do where the machine was unsteady: measure again, and see whether ranks wait for cores then."""
    waits = fall.core_waits if fall is not None else None
    if waits is None:
        return f"{measure_again(runs)}."
    then = waits_advice(waits, runs[-1], sized=False)
    return f"{measure_again(runs)}. If ranks wait for cores on a quiet machine, too: {then}."


def _of_one_count(study: StudyAnalysis, series: str, run: RunAnalysis) -> Verdict:
    """Return what a series' only run says of its step: how it scales, nothing tells."""
    own = run_verdict(run)
    notes = (capitalized(_NO_OTHER), *own.notes, *_outlook_sentences(study, series, [run]))
    return dataclasses.replace(own, subject=series, notes=notes)


def _outlook_sentences(study: StudyAnalysis, series: str, runs: Sequence[RunAnalysis]) -> list[str]:
    """Return what the sweep says: of the largest run's collectives, and of more GPUs."""
    sentences = []
    largest = max(runs, key=lambda run: run.world_size, default=None)
    if largest is not None and any(row.efficiency is not None for row in largest.in_situ):
        sentences.append(in_situ_sentence(largest))
    if study.projection is not None:
        expected = expectation_sentence(
            [one for one in study.projection.points if one.series == series], largest.activity if largest else None
        )
        sentences += [expected] if expected else []
    return sentences


def _throughput(point: ScalingPoint, points: Sequence[ScalingPoint]) -> str:
    if in_tokens(points) and point.tokens_per_s is not None:
        return f"{rate(point.tokens_per_s)} tokens/s"
    return f"{rate(point.samples_per_s or 0.0)} samples/s"
