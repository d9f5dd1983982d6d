"""A study in W&B: one analysis run with the study's tables and charts, in the group of its runs.

The pictures are the HTML report's own panels. Charts that W&B can draw itself (throughput, efficiency, busbw) are also
logged as its custom charts, so that they can be compared with other studies there.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scalescope.records.folder import RunFolder
from scalescope.records.frozen import read_frozen
from scalescope.report.drawing.palette import resolved
from scalescope.report.drawing.panel import can_draw
from scalescope.report.drawing.tables import Column, Table, stacked
from scalescope.report.panels.sections import sections
from scalescope.report.redaction.report_data import pseudonyms_of, redact
from scalescope.report.report_data import ReportData, read_report_data
from scalescope.report.scorecard import catalog_of, judged_rows, scorecard_table
from scalescope.report.sentences import Verdict, sweep_verdict
from scalescope.report.sinks.wandb import WandbSink
from scalescope.report.sinks.wandb_rows import wandb_table
from scalescope.report.text.findings import straggler_text
from scalescope.report.verdict.run import run_verdict
from scalescope.report.verdict.study import study_verdicts
from scalescope.report.views import (
    collectives_table,
    efficiency_table,
    in_tokens,
    kernels_table,
    partition_table,
    points_of,
    run_label,
    series_names,
    step_times_table,
    sweep_table,
    waterfall_table,
)

_WIDTH, _SCALE = 880, 2  # pixels of a picture, and how many device pixels each of them has


def log_study(folder: RunFolder, settings: Mapping[str, Any], *, pictures: bool = True) -> None:
    """Log a folder's analysis (a study's, or one run's) as one W&B run in the group of its runs.

    `settings` are conf/logger/wandb.yaml's; `pictures`: draw the report's charts as images, too, which takes a fifth of
    a second each. A W&B that fails is said and left: the
    folder has everything. Raises UserError where the folder is none.
    """
    data = read_report_data(folder)
    if redacts := bool(settings.get("redact")):
        data = redact(data, pseudonyms_of([folder]))
    name = f"{folder.path.name}-analysis"
    try:
        sink = WandbSink(**{**settings, "name": None}, dir=str(folder.path), group=folder.path.name,
                         job_type="analysis", run_name=name)  # fmt: skip
        _log(data, sink, name, folder, tables=not redacts, pictures=pictures)
    except Exception as error:  # noqa: BLE001 - whatever a stranger's service raises, the study is done
        print(f"scalescope: W&B has no analysis run ({error}); {folder.path} has everything", file=sys.stderr)


def _log(
    data: ReportData, sink: WandbSink, name: str, folder: RunFolder, *, tables: bool, pictures: bool = True
) -> None:
    """Log what there is; without tables also the charts go that W&B draws from them, but not their pictures."""
    sink.start(read_frozen(folder.config), name)
    verdicts = _verdicts(data)
    with TemporaryDirectory() as drawn:  # until W&B has its copies
        sink.log_values(
            lambda: {
                **({key: wandb_table(table) for key, table in study_tables(data).items()} if tables else {}),
                **(_native_charts(data) if tables else {}),
                **(_pictures(data, Path(drawn)) if pictures else {}),
            },
            {**_headline(data), "verdict": "\n\n".join(verdict.text for verdict in verdicts)},
        )
        for run in data.answers:
            for straggler in run.stragglers:
                said = straggler_text(run, straggler.rank)
                sink.alert(f"Straggler: rank {straggler.rank}", f"{run_label(run)}: {said}")
        sink.artifact(folder.path)
        sink.close("done")


def study_tables(data: ReportData) -> dict[str, Table]:
    """Return the tables of a study under the names that dashboards know; what has no rows is left out."""
    falls = []
    if data.study is not None:
        about = [Column("series", "series"), Column("from_world_size", "from", digits=0),
                 Column("to_world_size", "to", digits=0)]  # fmt: skip
        falls = [
            waterfall_table(fall).led_by(about, [fall.series, fall.from_world_size, fall.to_world_size])
            for fall in data.study.waterfall
        ]
    of_run = [Column("run", "run"), Column("world_size", "ranks", digits=0)]
    tables = {
        "study/efficiency": efficiency_table(data.study) if data.study else None,
        "study/waterfall": stacked(falls),
        "study/partition": stacked([partition_table(run).led_by(of_run, [run.name, run.world_size])
                                    for run in data.answers]),
        "study/collectives": stacked([collectives_table(run).led_by(of_run[:1], [run.name])
                                      for run in data.answers]),
        "study/kernels": stacked([kernels_table(run).led_by(of_run, [run.name, run.world_size])
                                  for run in data.answers]),
        "study/step_times": step_times_table(data.answers),
        "study/sweep": sweep_table(data.sweep),
        "scorecard": scorecard_table(judged_rows(data.scorecard, catalog_of(data.folder))),
    }  # fmt: skip
    return {key: table for key, table in tables.items() if table is not None and table.rows}


def _verdicts(data: ReportData) -> list[Verdict]:
    if data.study is not None:
        return study_verdicts(data.study, data.answers, data.sweep)
    found = [run_verdict(run) for run in data.answers]
    return [*found, sweep_verdict(data.sweep)] if data.sweep else found


def _headline(data: ReportData) -> dict[str, float]:
    """Return each series' figures at its largest count, and the sweep's best bandwidth."""
    figures: dict[str, float | None] = {}
    if data.study is not None:
        for series in series_names(data.study):
            for last in points_of(data.study, series)[-1:]:
                figures[f"{series}/efficiency"] = last.efficiency
                figures[f"{series}/speedup"] = last.speedup
                figures[f"{series}/step_ms"] = last.step_ms
                figures[f"{series}/samples_per_s"] = last.samples_per_s
                figures[f"{series}/tokens_per_s"] = last.tokens_per_s
                figures[f"{series}/mfu"] = last.mfu
    figures["best_busbw_gb_s"] = max((row.bus_gb_s for row in data.sweep if row.bus_gb_s), default=None)
    return {key: value for key, value in figures.items() if value is not None}


def _native_charts(data: ReportData) -> dict[str, Any]:
    """Return the charts that W&B's own presets can draw: lines over rank counts and over sizes."""
    import wandb

    charts: dict[str, Any] = {}
    study = data.study
    if study is not None:
        series = {name: points for name in series_names(study) if len(points := points_of(study, name)) > 1}
        for name, points in series.items():
            counts = [point.world_size for point in points]
            done = [point.tokens_per_s if in_tokens(points) else point.samples_per_s for point in points]
            perfect = [(done[0] or 0.0) / counts[0] * count for count in counts]
            charts[f"charts/throughput/{_slug(name)}"] = wandb.plot.line_series(
                xs=counts, ys=[done, perfect], keys=["measured", "perfect scaling"], xname="ranks",
                title=f"{name}: {'tokens' if in_tokens(points) else 'samples'}/s",
            )  # fmt: skip
        if series:
            charts["charts/efficiency"] = wandb.plot.line_series(
                xs=[[point.world_size for point in points] for points in series.values()],
                ys=[[point.efficiency for point in points] for points in series.values()],
                keys=list(series), xname="ranks", title="efficiency",
            )  # fmt: skip
    for operation in dict.fromkeys(row.operation for row in data.sweep):
        rows = [row for row in data.sweep if row.operation == operation and row.bus_gb_s is not None]
        groups = sorted({row.group_size for row in rows})
        if groups:
            charts[f"charts/busbw/{_slug(operation)}"] = wandb.plot.line_series(
                xs=[[row.bytes for row in rows if row.group_size == group] for group in groups],
                ys=[[row.bus_gb_s for row in rows if row.group_size == group] for group in groups],
                keys=[f"{group} ranks" for group in groups], xname="bytes", title=f"{operation}: busbw, GB/s",
            )  # fmt: skip
    return charts


def _pictures(data: ReportData, place: Path) -> dict[str, Any]:
    """Return the report's charts as images, the claim as caption; none where they cannot be drawn here.

    `place`: where they are drawn. W&B copies a file as it is, and would compress an image in memory once more.
    """
    import wandb

    if not can_draw():
        return {}
    found: dict[str, Any] = {}
    for section in sections(data, legends=True):
        drawn = [(panel, spec) for panel in section.panels for spec in panel.charts]
        for number, (panel, spec) in enumerate(drawn, 1):
            # numbered, not named after what it shows, so that a dashboard can name it before the study is there
            caption = f"{panel.title}: {panel.sentence}"
            file = place / f"{section.key}-{number}.png"
            file.write_bytes(_picture(spec))
            found[f"pictures/{section.key}-{number}"] = wandb.Image(str(file), caption=caption)
    return found


def _slug(text: str) -> str:
    """Return a name as a part of a W&B key, which becomes a file's name too."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")


def _picture(spec: dict[str, Any]) -> bytes:
    import vl_convert

    fixed = json.loads(resolved(json.dumps({**spec, "width": _WIDTH, "background": "white"})))
    return vl_convert.vegalite_to_png(fixed, scale=_SCALE)
