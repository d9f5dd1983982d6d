"""The cards at the top of a page: a verdict each, its figures, and where its step goes."""

import statistics
from collections.abc import Sequence

from scalescope.report.as_run.shown import differs, is_likely, name_of_step, shown_efficiency, shown_step
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import factor, figure, milliseconds, percent, rate
from scalescope.report.grown import lengthened_ms
from scalescope.report.page import Card, Figure, JudgedBy, Stretch
from scalescope.report.panels.compute_lines import on_cores_clause, on_cores_figure
from scalescope.report.replayed import between_longer_ones
from scalescope.report.report_data import ReportData, RunData
from scalescope.report.scorecard import catalog_of, scorecard_sentence
from scalescope.report.sentences import Verdict, sweep_verdict
from scalescope.report.text.recurring import is_told, pace
from scalescope.report.text.scaling.efficiency import efficiency_figure
from scalescope.report.top.bars import run_bars, series_bars
from scalescope.report.verdict.notes import of_mean
from scalescope.report.verdict.run import run_verdict
from scalescope.report.verdict.study import study_verdicts
from scalescope.report.views import grew_within_noise, in_tokens, of_what, points_of, series_names, waterfall_steps
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.of_job import interval_of_job
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.study_answer import ScalingPoint, StudyAnalysis

_NO_MFU = "no peak is known for this device, or no FLOP count for this model"


def cards_of(data: ReportData) -> list[Card]:
    """Return a card a series of a study, else a card a run; then the sweep's and the scorecard's; never none."""
    study = data.study
    if study is None:
        cards = [_of_run(run) for run in data.answers]
        cards += [_unanalysed(run) for run in data.runs if run.answer is None]
        if data.sweep:
            cards.append(_of_sweep(sweep_verdict(data.sweep), data))
        if data.scorecard:
            sentence = scorecard_sentence(data.scorecard, catalog_of(data.folder))
            cards.append(Card(Verdict(data.name, "unknown", sentence)))
        return cards or [Card(Verdict(data.name, "unknown", "There is nothing measured here yet."))]
    cards = []
    names = series_names(study)
    for verdict in study_verdicts(study, data.answers, data.sweep):
        if verdict.subject in names:
            series = verdict.subject
            drawn = series_bars(_of_series(study, series, data.answers))
            figures, lost = _series_figures(study, series, data.answers), _lost(study, series)
            by: JudgedBy = "efficiency" if len(points_of(study, series)) > 1 else "step"
            cards.append(Card(verdict, figures, drawn, lost, by))
        else:
            cards.append(_of_sweep(verdict, data))
    return cards


def _of_run(run: RunAnalysis) -> Card:
    verdict = run_verdict(run)
    by: JudgedBy = "reference" if verdict.is_beside else "step"
    return Card(verdict, _run_figures(run), run_bars(run), judged_by=by)


def _of_sweep(verdict: Verdict, data: ReportData) -> Card:
    """Return a sweep's card, which is judged where it is known what its links allow, or where results are wrong."""
    known = any(row.ceiling_gb_s for row in data.sweep) or verdict.level == "poor"
    return Card(verdict, judged_by="links" if known else None)


def _of_series(study: StudyAnalysis, series: str, runs: Sequence[RunAnalysis]) -> list[RunAnalysis]:
    names = {point.run for point in study.efficiency if point.series == series}
    return [run for run in runs if run.name in names]


def _unanalysed(run: RunData) -> Card:
    ended = f" It ended as {run.info.status}: {run.info.message}." if run.info.message else ""
    headline = f"{run.name}: where its time goes is not known yet."
    return Card(Verdict(run.name, "unknown", headline, (f"{run.reason or 'It was not analysed'}.{ended}",)))


def _series_figures(study: StudyAnalysis, series: str, runs: Sequence[RunAnalysis]) -> list[Figure]:
    points = points_of(study, series)
    if not points:
        return []
    last = points[-1]
    several = len(points) > 1
    of_series = [run for point in points for run in runs if run.name == point.run]
    done = next((run.throughput for run in runs if run.name == last.run), None)
    return [
        *([Figure(f"{last.scaling} scaling efficiency", efficiency_figure(last, of_series))] if several else []),
        *_rates(last, points),
        # plain traces tell no throughput: theirs is the step that they hold
        _length("step as run, measured" if last.samples_per_s is not None else "step as profiled", last.step_ms),
        *([Figure("speedup", factor(last.speedup))] if several else []),
        _mfu(last.mfu, done.mfu_of_measured if done is not None else None),
    ]


def _rates(last: ScalingPoint, points: Sequence[ScalingPoint]) -> list[Figure]:
    if in_tokens(points) and last.tokens_per_s is not None:
        return [Figure("throughput", rate(last.tokens_per_s), "tokens/s")]
    return [Figure("throughput", rate(last.samples_per_s), "samples/s")] if last.samples_per_s is not None else []


def _run_figures(run: RunAnalysis) -> list[Figure]:
    """Return a run's figures, most telling first: how long a step takes, what is done in it, how much of it is lost."""
    done, figures = run.throughput, _step(run)
    if done is not None:
        value, unit = (
            (done.tokens_per_s, "tokens/s") if done.tokens_per_s else (done.samples_per_s, f"{of_what(done)}/s")
        )
        overall = run.step_times.overall if run.step_times is not None else 1.0
        if run.recurring is not None and is_told(run):
            figures.append(Figure("throughput, between the longer steps", rate(value), unit))
            figures.append(
                Figure("throughput with the longer steps", rate(value * overall * pace(run.recurring)), unit)
            )
        else:
            mean = of_mean(run.step_times) if run.step_times is not None and run.growing is None else None
            label = f"throughput{_where(run)}"
            if overall != 1.0:
                label = f"throughput{_where(run)}, long steps included"
            elif mean is not None:  # as the sentence has it
                label, overall = "throughput over all steady steps", mean
            figures.append(Figure(label, rate(value * overall), unit))
    factors, whose = shown_efficiency(run)
    if factors is not None:
        label = f"parallel efficiency {whose.split(',')[0]}".rstrip()
        figures.append(Figure(*on_cores_figure(label, factors)))
    figures += _shares(run)
    if done is None:
        return figures
    figures.append(_mfu(done.mfu, done.mfu_of_measured))
    if done.joules_per_sample is not None:
        figures.append(Figure("energy a sample", figure(done.joules_per_sample, 3), "J"))
    return figures


def _step(run: RunAnalysis) -> list[Figure]:
    """Return how long a step takes: as measured without a profiler, else as run, else as profiled.

    It is the job's own where that is known, as in the sentence and the bars, whatever length its parts add up to.
    """
    if run.step_times is not None and run.step_times.measured_step_ms is not None:
        told = run.as_run
        if told is not None and told.step_ms == run.step_times.measured_step_ms:  # one figure, and one name for it
            step = interval_of_job(told)
            spread = f" ({milliseconds(step.low)} to {milliseconds(step.high)})" if step.low < step.high else ""
            which = between_longer_ones(run) or ", median"  # the throughput may be of the mean one
            return [_length(f"step as run{which}{spread}{_where(run)}", step.value)]
        if run.recurring is not None and is_told(run):
            return [_length("step as run, between the longer ones", run.step_times.measured_step_ms)]
        return [_length(f"step as run, measured{_where(run)}", run.step_times.measured_step_ms)]
    if not run.ranks or run.steps_by is None or run.quality.verdict == "unusable":
        return []
    if not differs(run):
        return [_length("step as profiled", statistics.fmean(one.window_ms for one in shown_step(run)))]
    known = run.as_run.step_ms if run.as_run is not None else None  # the job's own, where that is told
    label = "step as run, likely" if is_likely(run) else "step as run"
    return [_length(label, step_as_run(run)[0].value if known is None else known)]


def _length(label: str, ms: float) -> Figure:
    """Return a step's length, with the digits that it has in sentences: one figure for one thing."""
    value, unit = milliseconds(ms).split(" ")
    return Figure(label, value, unit)


def _where(run: RunAnalysis) -> str:
    """Return of which steps a figure is, where no step is like another."""
    return "" if run.growing is None else ", where the profiled steps are"


def _shares(run: RunAnalysis) -> list[Figure]:
    """Return how much of the step, or of what was recorded, is compute, and the largest other part."""
    if not run.ranks or run.quality.verdict == "unusable":
        return []
    ranks = shown_step(run) if run.steps_by is not None else run.ranks
    window = sum(one.window_ms for one in ranks)
    means = {part.key: sum(one.part_ms(part.key) for one in ranks) for part in parts.ALL}
    if not window:
        return []
    whose = "compute, of all recorded" if run.steps_by is None else "compute"
    if run.steps_by is not None and differs(run):
        whose = f"compute {name_of_step(run)}{', likely' if is_likely(run) else ''}"
    whose = f"{whose}, waits for cores included" if on_cores_clause(run) else whose
    compute = Figure(whose, percent(means.pop("compute") / window))
    worst = max(means, key=lambda key: means[key])
    largest = Figure(f"{parts.named(worst).name}, the largest other part", percent(means[worst] / window))
    return [compute, largest] if means[worst] > 0 else [compute]


def _mfu(mfu: float | None, of_measured: float | None) -> Figure:
    """Return the MFU over the data sheet's peak, else over what a matrix product reaches on the device itself."""
    if mfu is not None:
        return Figure("MFU", percent(mfu))
    if of_measured is not None:
        return Figure(
            "MFU, measured ceiling", percent(of_measured), "", "no data sheet's peak is known for this device"
        )
    return Figure("MFU", "–", "", _NO_MFU)


def _lost(study: StudyAnalysis, series: str) -> list[Stretch]:
    """Return the growth to the largest count as a thin bar: how the parts that became longer compare at a glance."""
    falls = [fall for fall in study.waterfall if fall.series == series]
    if not falls or falls[-1].growth_ms <= 0 or grew_within_noise(falls[-1]):
        return []
    steps = waterfall_steps(falls[-1])
    whole = lengthened_ms(steps)
    more = sorted((step for step in steps if step[1] > 0.005 * whole), key=lambda step: -step[1])
    return [
        Stretch(f"{1000 * ms / whole:.1f}", f"var({part.variable})", f"{part.name} {percent(ms / whole, 0)}")
        for part, ms in more
    ]
