"""report.html: one file that needs no network, the verdict first, each chart with its sentence and its figures."""

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from records.files import write_atomic
from records.folder import RunFolder
from records.rows import RunInfo
from report import parts
from report.material import Material, Run, read_material
from report.numbers import factor, figure, percent, rate
from report.palette import stylesheet
from report.panel import NO_DRAWING, Section, Spec, can_draw
from report.panels import sections
from report.tables import Cell, Column, Table
from report.verdict import Verdict, run_verdict, study_verdicts, sweep_verdict
from report.views import devices_table, in_tokens, points_of, series_names, waterfall_steps
from scaling.answer import RunAnalysis, ScalingPoint, StudyAnalysis

#: Rows of one table on the page, and in its CSV; the run folder has them all.
_PAGE_ROWS, _CSV_ROWS = 250, 3000
_FIGURE_AND_UNIT = re.compile(r"(\d) (ms|µs|[kKMG]i?B/?s?|B|GPUs?|CPU ranks?|ranks?|tokens/s|samples/s)\b")
_NO_MFU = "no peak is known for this device, or no FLOP count for this model"

_WORDS = (
    ("efficiency", "Speedup over the smallest rank count of the series, over the ratio of the rank counts."),
    ("compute factor, parallel factor", "How much of the efficiency is compute that stayed as fast, and how much "
     "is time that stayed compute. Their product explains the efficiency of the profiled window."),
    ("busbw", "Algorithm bandwidth (size over time) times nccl-tests' factor: comparable with the links' rate."),
    ("transfer and wait", "A collective's wait on a rank is the time before its data can be there, most often before "
     "the last member arrives; the rest is transfer."),
    ("MFU", "Model FLOPs over the device's dense data-sheet peak. Recomputation is not counted."),
    ("profiling overhead", "The step inside the profiler's window minus the step measured outside it."),
    ("before the window", "Device activity launched before the window opened: its own figure, in no part."),
)  # fmt: skip


@dataclass(frozen=True)
class _Figure:
    label: str
    value: str
    unit: str = ""
    reason: str = ""


@dataclass(frozen=True)
class _Lost:
    """One stretch of the thin bar under a verdict."""

    weight: str
    colour: str
    label: str


@dataclass(frozen=True)
class _Card:
    verdict: Verdict
    figures: list[_Figure] = field(default_factory=list)
    lost: list[_Lost] = field(default_factory=list)


@dataclass(frozen=True)
class _TableCell:
    text: str
    number: bool
    reason: str


@dataclass(frozen=True)
class _TableView:
    columns: Sequence[Column]
    rows: list[list[_TableCell]]
    absent: list[tuple[str, str]]
    note: str
    csv: str
    file: str


@dataclass(frozen=True)
class _PanelView:
    title: str
    sentence: str
    table: _TableView
    charts: list[str]
    legend: Sequence[Any]
    reason: str
    open: bool


@dataclass(frozen=True)
class _SectionView:
    key: str
    title: str
    panels: list[_PanelView]


@dataclass(frozen=True)
class _Machine:
    title: str
    pairs: list[tuple[str, str]]
    table: _TableView
    texts: list[tuple[str, str]]


def write_report(folder: RunFolder, out: Path | None = None) -> Path:
    """Write the report of a study, a train run or a sweep; return its path (`report.html` in the folder).

    Where altair or vl-convert is missing the page holds the verdict and the tables, and says what the charts need.
    Raises UserError where the folder is none, OSError where the page cannot be written.
    """
    path = out or folder.report
    write_atomic(path, render(read_material(folder)))
    return path


def render(material: Material) -> str:
    """Return the page's HTML. Every name from a trace or a config is text in it, never markup or script."""
    built = sections(material)
    specs: dict[str, Spec] = {}
    shown = [_section_view(section, specs) for section in built]
    drawn = can_draw() and bool(specs)
    scripts = _scripts() if drawn else ("", "")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["unbroken"] = unbroken
    return environment.from_string(_asset("page.html")).render(
        name=material.name,
        facts=_facts(material),
        script_sources=" ".join(f"'sha256-{_digest(script)}'" for script in scripts) if drawn else "'none'",
        palette=stylesheet(),
        css=_asset("page.css"),
        cards=_cards(material),
        notes=_notes(material),
        sections=shown,
        heights={key: int(spec.get("height", 200)) + 50 for key, spec in specs.items()},
        machines=_machines(material),
        parts=parts.ALL,
        words=_WORDS,
        version=_version(),
        made=f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}",
        drawn=drawn,
        specs=Markup(inline_json(specs)),
        library=Markup(scripts[0]),
        script=Markup(scripts[1]),
    )


def unbroken(text: str) -> str:
    """Return prose in which no line breaks between a figure and its unit."""
    return _FIGURE_AND_UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", text)


def inline_json(value: object) -> str:
    """Return JSON that can stand inside a <script> element: no character of it can end one or open a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def table_csv(table: Table) -> str:
    """Return a table as CSV under the machine's names, full precision, an empty field where a value is missing.

    A text that a spreadsheet would take for a formula is quoted with an apostrophe: names come from strangers' traces.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.key for column in table.columns])
    writer.writerows([[_csv_cell(cell) for cell in row] for row in table.rows[:_CSV_ROWS]])
    return out.getvalue()


def _csv_cell(cell: Cell) -> str | int | float:
    if cell is None:
        return ""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in tuple("=+-@\t\r") else cell


def _scripts() -> tuple[str, str]:
    """Return vl-convert's bundle (Vega, Vega-Lite, Vega-Embed) and the page's own script."""
    import vl_convert

    library: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub wrongly asks for an argument
    library = library.replace("\r\n", "\n").replace("\r", "\n")
    # no address stays in the page but the names of XML namespaces, which are not fetched
    library = library.replace("https://vega.github.io/editor/", "about:blank")
    return re.sub(r"</(script)", r"<\\/\1", library, flags=re.I).replace("<!--", r"<\!--"), _asset("page.js")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _asset(name: str) -> str:
    return (files("report") / name).read_text(encoding="utf-8")


def _version() -> str:
    try:
        return version("scalescope")
    except PackageNotFoundError:
        return "(from a checkout)"


def _section_view(section: Section, specs: dict[str, Spec]) -> _SectionView:
    views = []
    for panel in section.panels:
        ids = []
        for spec in panel.charts:
            ids.append(f"chart-{len(specs)}")
            specs[ids[-1]] = spec
        views.append(
            _PanelView(
                panel.title,
                panel.sentence,
                _table_view(panel.table, panel.key),
                ids,
                panel.legend if panel.charts else (),
                panel.reason or NO_DRAWING,
                open=not panel.charts,
            )
        )
    return _SectionView(section.key, section.title, views)


def _table_view(table: Table, key: str) -> _TableView:
    rows = [
        [
            _TableCell(
                column.show(cell),
                column.is_figure,
                table.reasons.get(column.key, "not measured") if cell is None else "",
            )
            for column, cell in zip(table.columns, row, strict=True)
        ]
        for row in table.rows[:_PAGE_ROWS]
    ]
    note = table.note
    if len(table.rows) > _PAGE_ROWS:
        note += f" The first {_PAGE_ROWS} of {len(table.rows):,} rows."
    if len(table.rows) > _CSV_ROWS:
        note += f" The CSV holds {_CSV_ROWS:,}; the run folder has all."
    data = base64.b64encode(table_csv(table).encode()).decode()
    return _TableView(
        table.columns,
        rows,
        [(column.title, reason) for column, reason in table.absent()],
        note,
        f"data:text/csv;charset=utf-8;base64,{data}",
        f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', key)}.csv",
    )


def _cards(material: Material) -> list[_Card]:
    study = material.study
    if study is None:
        cards = [_Card(run_verdict(run), _run_figures(run)) for run in material.answers]
        cards += [_unanalysed(run) for run in material.runs if run.answer is None]
        if material.sweep:
            cards.append(_Card(sweep_verdict(material.sweep)))
        return cards or [_Card(Verdict(material.name, "unknown", "There is nothing measured here yet."))]
    cards = []
    names = series_names(study)
    for verdict in study_verdicts(study, material.answers, material.sweep):
        if verdict.subject in names:
            cards.append(_Card(verdict, _series_figures(study, verdict.subject), _lost(study, verdict.subject)))
        else:
            cards.append(_Card(verdict))
    return cards


def _unanalysed(run: Run) -> _Card:
    ended = f" It ended as {run.info.status}: {run.info.message}." if run.info.message else ""
    headline = f"{run.name}: where its time goes is not known yet."
    return _Card(Verdict(run.name, "unknown", headline, (f"{run.reason or 'It was not analysed'}.{ended}",)))


def _series_figures(study: StudyAnalysis, series: str) -> list[_Figure]:
    points = points_of(study, series)
    if not points:
        return []
    last = points[-1]
    figures = [
        _Figure("efficiency", percent(last.efficiency)),
        _Figure("speedup", factor(last.speedup)),
    ] if len(points) > 1 else []  # fmt: skip
    return [*figures, *_rates(last, points), _Figure("step", figure(last.step_ms, 2), "ms"), _mfu(last.mfu)]


def _rates(last: ScalingPoint, points: Sequence[ScalingPoint]) -> list[_Figure]:
    if in_tokens(points) and last.tokens_per_s is not None:
        return [_Figure("throughput", rate(last.tokens_per_s), "tokens/s")]
    return [_Figure("throughput", rate(last.samples_per_s), "samples/s")]


def _run_figures(run: RunAnalysis) -> list[_Figure]:
    figures = []
    if run.efficiency is not None:
        figures.append(_Figure("parallel efficiency", percent(run.efficiency.parallel)))
    done, times = run.throughput, run.step_times
    if done is not None:
        value, unit = (done.tokens_per_s, "tokens/s") if done.tokens_per_s else (done.samples_per_s, "samples/s")
        figures.append(_Figure("throughput", rate(value), unit))
    if times is not None and times.measured_step_ms is not None:
        figures.append(_Figure("step", figure(times.measured_step_ms, 2), "ms"))
    return [*figures, _mfu(done.mfu)] if done is not None else figures


def _mfu(mfu: float | None) -> _Figure:
    return _Figure("MFU", "–", "", _NO_MFU) if mfu is None else _Figure("MFU", percent(mfu))


def _lost(study: StudyAnalysis, series: str) -> list[_Lost]:
    """Return the growth to the largest count as a thin bar: how its positive parts compare at a glance."""
    falls = [fall for fall in study.waterfall if fall.series == series]
    if not falls or falls[-1].growth_ms <= 0:
        return []
    grown = falls[-1].growth_ms
    return [
        _Lost(f"{ms:.4f}", f"var({part.variable})", f"{part.name} {percent(ms / grown, 0)}")
        for part, ms in sorted(waterfall_steps(falls[-1]), key=lambda step: -step[1])
        if ms > 0.005 * grown
    ]


def _notes(material: Material) -> list[str]:
    notes = [*material.notes, *(material.study.reasons if material.study else [])]
    if material.study is not None:
        notes += [f"{run.name} is not analysed: {run.reason}" for run in material.runs if run.answer is None]
    unfinished = [run for run in (*material.runs, *material.sweep_runs) if run.info.status not in ("done", "running")]
    notes += [
        f"{run.name} ended as {run.info.status}{f': {run.info.message}' if run.info.message else ''}"
        for run in unfinished
    ]
    if not can_draw():
        notes.append(NO_DRAWING)
    return list(dict.fromkeys(notes))


def _facts(material: Material) -> str:
    infos = [run.info for run in (*material.runs, *material.sweep_runs)] or [material.info]
    info = max(infos, key=lambda info: info.world_size or 0)
    texts = []
    if info.devices:
        texts.append(f"{len(info.devices)} × {info.devices[0].name}")
    if len(info.hosts) > 1:
        texts.append(f"{len(info.hosts)} hosts")
    if info.environment is not None:
        versions = info.environment.versions
        texts += [versions.collective_library] if versions.collective_library else []
        texts += [f"torch {versions.torch}"] if versions.torch else []
    texts.append(f"{datetime.fromtimestamp(material.info.started_unix_s).astimezone():%Y-%m-%d %H:%M}")
    return " · ".join(texts)


def _machines(material: Material) -> list[_Machine]:
    """Return one entry a distinct environment, with the configs of its runs."""
    runs = list({run.name: run for run in (*material.runs, *material.sweep_runs)}.values())
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(repr((run.info.environment, run.info.backend)), []).append(run)
    machines = []
    for members in groups.values():
        largest = max(members, key=lambda run: run.info.world_size or 0)
        texts = [(f"Configuration of {run.name}", run.config) for run in members if run.config]
        names = ", ".join(run.name for run in members)
        table = _table_view(devices_table(largest.info.devices), f"devices-{largest.name}")
        machines.append(_Machine(names, _pairs(largest.info), table, texts))
    return machines


def _pairs(info: RunInfo) -> list[tuple[str, str]]:
    pairs: list[tuple[str, object]] = [("backend", info.backend), ("started by", info.launcher)]
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
