"""report.html: one file that needs no network, the verdict first, each chart with its sentence and its figures."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from scalescope.records.files import write_atomic
from scalescope.records.folder import RunFolder
from scalescope.report.as_run import shown_efficiency
from scalescope.report.drawing.numbers import factor, figure, milliseconds, percent, rate
from scalescope.report.of_traces import data_of_traces
from scalescope.report.page import Card, Figure, Lost, Machine, Page, render
from scalescope.report.panels.sections import sections
from scalescope.report.redaction.report_data import pseudonyms_of, redact
from scalescope.report.report_data import ReportData, RunData, read_report_data
from scalescope.report.scorecard import scorecard_sentence
from scalescope.report.sentences import Verdict, sweep_verdict
from scalescope.report.verdict import run_verdict, study_verdicts
from scalescope.report.views import devices_table, in_tokens, points_of, series_names, waterfall_steps
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.study_answer import Answer, ScalingPoint, StudyAnalysis

_NO_MFU = "no peak is known for this device, or no FLOP count for this model"


def write_report(folder: RunFolder, out: Path | None = None) -> Path:
    """Write the report of a study, a train run or a sweep; return its path (`report.html` in the folder).

    Where altair or vl-convert is missing the page holds the verdict and the tables, and says what the charts need.
    Raises UserError where the folder is none, OSError where the page cannot be written.
    """
    path = out or folder.report
    write_atomic(path, render(page_of(read_report_data(folder))))
    return path


def write_traces_report(answers: Sequence[Answer], name: str, out: Path) -> Path:
    """Write the report of plain traces, of one job or several, to a file; return its path.

    `answers`: the runs', and what compares them where there is such. Raises OSError where it cannot be written.
    """
    write_atomic(out, render(page_of(data_of_traces(answers, name))))
    return out


def write_redacted_report(folder: RunFolder, answers: Sequence[Answer] | None = None, out: Path | None = None) -> Path:
    """Write the report without names of hosts and users and without absolute paths; return its path.

    It goes beside the folder's own, to `report-redacted.html`. `answers`: the analysis, where it is not to be read from
    the folder. Raises as `write_report`.
    """
    path = out or folder.path / "report-redacted.html"
    data = redact(read_report_data(folder, answers), pseudonyms_of([folder]))
    write_atomic(path, render(page_of(data)))
    return path


def page_of(data: ReportData) -> Page:
    """Return what the page of a folder shows."""
    return Page(
        name=data.name,
        facts=facts_of(data),
        cards=_cards(data),
        notes=_notes(data),
        sections=sections(data),
        machines=machines_of(data),
    )


def _cards(data: ReportData) -> list[Card]:
    study = data.study
    if study is None:
        cards = [Card(run_verdict(run), _run_figures(run)) for run in data.answers]
        cards += [_unanalysed(run) for run in data.runs if run.answer is None]
        if data.sweep:
            cards.append(Card(sweep_verdict(data.sweep)))
        if data.scorecard:
            cards.append(Card(Verdict(data.name, "unknown", scorecard_sentence(data.scorecard))))
        return cards or [Card(Verdict(data.name, "unknown", "There is nothing measured here yet."))]
    cards = []
    names = series_names(study)
    for verdict in study_verdicts(study, data.answers, data.sweep):
        if verdict.subject in names:
            cards.append(
                Card(verdict, _series_figures(study, verdict.subject, data.answers), _lost(study, verdict.subject))
            )
        else:
            cards.append(Card(verdict))
    return cards


def _unanalysed(run: RunData) -> Card:
    ended = f" It ended as {run.info.status}: {run.info.message}." if run.info.message else ""
    headline = f"{run.name}: where its time goes is not known yet."
    return Card(Verdict(run.name, "unknown", headline, (f"{run.reason or 'It was not analysed'}.{ended}",)))


def _series_figures(study: StudyAnalysis, series: str, runs: Sequence[RunAnalysis]) -> list[Figure]:
    points = points_of(study, series)
    if not points:
        return []
    last = points[-1]
    figures = [
        Figure("efficiency", percent(last.efficiency)),
        Figure("speedup", factor(last.speedup)),
    ] if len(points) > 1 else []  # fmt: skip
    done = next((run.throughput for run in runs if run.name == last.run), None)
    mfu = _mfu(last.mfu, done.mfu_of_measured if done is not None else None)
    return [*figures, *_rates(last, points), Figure("step", figure(last.step_ms, 2), "ms"), mfu]


def _rates(last: ScalingPoint, points: Sequence[ScalingPoint]) -> list[Figure]:
    if in_tokens(points) and last.tokens_per_s is not None:
        return [Figure("throughput", rate(last.tokens_per_s), "tokens/s")]
    return [Figure("throughput", rate(last.samples_per_s), "samples/s")] if last.samples_per_s is not None else []


def _run_figures(run: RunAnalysis) -> list[Figure]:
    figures = []
    factors, whose = shown_efficiency(run)
    if factors is not None:
        figures.append(Figure(f"parallel efficiency {whose.split(',')[0]}".rstrip(), percent(factors.parallel)))
    done, times = run.throughput, run.step_times
    if done is not None:
        value, unit = (done.tokens_per_s, "tokens/s") if done.tokens_per_s else (done.samples_per_s, "samples/s")
        figures.append(Figure("throughput", rate(value), unit))
    if times is not None and times.measured_step_ms is not None:
        figures.append(Figure("step", figure(times.measured_step_ms, 2), "ms"))
    if done is None:
        return figures
    figures.append(_mfu(done.mfu, done.mfu_of_measured))
    if done.joules_per_sample is not None:
        figures.append(Figure("energy a sample", figure(done.joules_per_sample, 3), "J"))
    return figures


def _mfu(mfu: float | None, of_measured: float | None) -> Figure:
    """Return the MFU over the data sheet's peak, else over what a matrix product reaches on the device itself."""
    if mfu is not None:
        return Figure("MFU", percent(mfu))
    if of_measured is not None:
        return Figure(
            "MFU, measured ceiling", percent(of_measured), "", "no data sheet's peak is known for this device"
        )
    return Figure("MFU", "–", "", _NO_MFU)


def _lost(study: StudyAnalysis, series: str) -> list[Lost]:
    """Return the growth to the largest count as a thin bar: how its positive parts compare at a glance."""
    falls = [fall for fall in study.waterfall if fall.series == series]
    if not falls or falls[-1].growth_ms <= 0:
        return []
    grown = falls[-1].growth_ms
    more = sorted((step for step in waterfall_steps(falls[-1]) if step[1] > 0.005 * grown), key=lambda step: -step[1])
    whole = all(ms <= grown for _, ms in more)  # else they are no shares: other parts shrank meanwhile
    return [
        Lost(f"{1000 * ms / grown:.1f}", f"var({part.variable})",
             f"{part.name} {percent(ms / grown, 0) if whole else milliseconds(ms)}")
        for part, ms in more
    ]  # fmt: skip


def _notes(data: ReportData) -> list[str]:
    notes = [*data.notes, *(data.study.reasons if data.study else [])]
    if data.study is not None:
        notes += [f"{run.name} is not analysed: {run.reason}" for run in data.runs if run.answer is None]
    known = _said_to_be_unfinished(data)
    notes += [
        f"{run.name} ended as {run.info.status}{f': {run.info.message}' if run.info.message else ''}"
        for run in (*data.runs, *data.sweep_runs)
        if run.info.status not in ("done", "running") and run.name not in known
    ]
    return list(dict.fromkeys(notes))


def _said_to_be_unfinished(data: ReportData) -> list[str]:
    """Return the runs of which a study's own reasons say how they ended."""
    if data.study is None:
        return []
    return data.study.runs if data.study.unfinished is None else data.study.unfinished


def facts_of(data: ReportData) -> str:
    """Return one line: devices, hosts, the collective library, torch, when."""
    infos = [run.info for run in (*data.runs, *data.sweep_runs)] or [data.info]
    info = max(infos, key=lambda info: info.world_size or 0)
    texts = []
    if info.devices:
        texts.append(f"{len(info.devices)} × {info.devices[0].name}")
    elif data.of_traces:
        texts += list(dict.fromkeys(f"{run.world_size} × {run.device}" for run in data.answers if run.device))
    if len(info.hosts) > 1:
        texts.append(f"{len(info.hosts)} hosts")
    if info.environment is not None:
        versions = info.environment.versions
        texts += [versions.collective_library] if versions.collective_library else []
        texts += [f"torch {versions.torch}"] if versions.torch else []
    when = "analysed " if data.of_traces else ""
    texts.append(f"{when}{datetime.fromtimestamp(data.info.started_unix_s).astimezone():%Y-%m-%d %H:%M}")
    return " · ".join(texts)


def machines_of(data: ReportData) -> list[Machine]:
    """Return one entry a distinct environment, with the configs of its runs."""
    if data.of_traces:
        return []
    runs = list({run.name: run for run in (*data.runs, *data.sweep_runs)}.values())
    groups: dict[str, list[RunData]] = {}
    for run in runs:
        groups.setdefault(repr((run.info.environment, run.info.backend)), []).append(run)
    machines = []
    for members in groups.values():
        largest = max(members, key=lambda run: run.info.world_size or 0)
        texts = [(f"Configuration of {run.name}", run.config) for run in members if run.config]
        names = ", ".join(run.name for run in members)
        machines.append(Machine(names, _pairs(largest), devices_table(largest.info.devices), texts))
    return machines


def _pairs(run: RunData) -> list[tuple[str, str]]:
    info, facts = run.info, run.facts
    pairs: list[tuple[str, object]] = [("backend", info.backend), ("started by", info.launcher)]
    if facts is not None:
        pairs += [("torch.compile", "yes" if facts.compiled else "no"), ("attention kernel", facts.attention)]
    if info.hosts:
        pairs.append(("hosts", ", ".join(info.hosts)))
    if info.environment is not None:
        known, versions = info.environment, info.environment.versions
        pairs += [("platform", known.platform), ("CPU", f"{known.cpu}, {known.cpu_cores} cores"),
                  ("Python", versions.python), ("torch", versions.torch), ("CUDA", versions.cuda),
                  ("ROCm", versions.hip), ("collectives", versions.collective_library), ("driver", versions.driver),
                  ("scalescope", versions.scalescope)]  # fmt: skip
        pairs += list(known.variables.items())
    if info.ceilings is not None:
        limits = info.ceilings
        if limits.peak_tflops is not None:
            pairs.append(("peak", f"{rate(limits.peak_tflops)} TFLOP/s {limits.peak_dtype or ''}, "
                          f"{limits.peak_source or 'no source'}"))  # fmt: skip
        if limits.matmul_tflops is not None:
            pairs.append(("measured matmul", f"{rate(limits.matmul_tflops)} TFLOP/s {limits.matmul_shape or ''}"))
        if limits.memory_tb_s is not None:
            pairs.append(("memory bandwidth", f"{figure(limits.memory_tb_s, 2)} TB/s"))
        if limits.link_gb_s is not None:
            pairs.append(
                ("link", f"{rate(limits.link_gb_s)} GB/s a direction, {limits.link_topology or 'topology unknown'}")
            )
    return [(key, str(value)) for key, value in pairs if value is not None]
