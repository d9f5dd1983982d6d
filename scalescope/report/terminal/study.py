"""A study on a terminal: a verdict a series, how it scales, and where its steps grew."""

from collections.abc import Sequence

from rich.console import Console

from scalescope.records.rows import SweepRow
from scalescope.report.advice.unsteady import is_unsteady_series
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.report.grown import lengthened_ms
from scalescope.report.panels.advice import tried_table
from scalescope.report.replayed import beside_all
from scalescope.report.terminal.console import print_line
from scalescope.report.terminal.sweep import print_sweep
from scalescope.report.terminal.tables import print_table
from scalescope.report.terminal.verdicts import print_findings, print_notes, print_verdict
from scalescope.report.text.scaling.factors import cores_sentence, factors_line, factors_sentence
from scalescope.report.verdict.study import study_verdicts
from scalescope.report.views import (
    activities,
    devices,
    efficiency_table,
    grew_within_noise,
    points_of,
    series_names,
    waterfall_steps,
)
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.study_answer import StudyAnalysis, Waterfall


def print_study(
    study: StudyAnalysis,
    runs: Sequence[RunAnalysis],
    sweep_rows: Sequence[SweepRow],
    console: Console,
) -> None:
    """Print a study: a verdict a series, the scaling table, and the waterfall of each series in ms and percent."""
    verdicts = study_verdicts(study, runs)
    for verdict in verdicts:
        print_verdict(console, verdict)
    kinds = activities(runs)
    for series in series_names(study):
        points = points_of(study, series)
        if points:
            table = efficiency_table(study)
            rows = [row[1:] for row in table.rows if row[0] == series]
            columns = list(table.columns)[1:]
            columns[0] = Column("world_size", "CPU ranks" if kinds.get(points[0].run) == "cpu" else "GPUs", digits=0)
            kept = [index for index in range(len(columns)) if any(row[index] is not None for row in rows)]
            rows = [[row[index] for index in kept] for row in rows]
            print_table(console, Table([columns[index] for index in kept], rows, table.reasons), series)
            for told in filter(None, (factors_sentence(points), cores_sentence(points, runs))):
                print_line(console, told)
        for fall in (fall for fall in study.waterfall if fall.series == series):
            _print_waterfall(console, fall, kinds.get(points[0].run) if points else None)
        largest = [run for run in runs if points and run.name == points[-1].run]
        for fall in [fall for fall in study.waterfall if fall.series == series][-1:]:
            for told in filter(None, (beside_all(run, fall.to_step_ms) for run in largest)):
                print_line(console, told)
        for run in largest:
            print_findings(console, run, unsteady=is_unsteady_series(study, series, runs))
    for verdict in verdicts:
        print_notes(console, verdict)
    if study.tried:
        print_table(console, tried_table(study.tried), "Advice followed: expected and measured")
    for reason in study.reasons:
        print_line(console, f"Note: {reason}", "yellow")
    if sweep_rows:
        print_sweep(sweep_rows, console)


def print_closing(study: StudyAnalysis, runs: Sequence[RunAnalysis], console: Console) -> None:
    """Print what matters most of a study: its counts in one table, then a verdict a series, which ends with the advice.

    For what ends with it, on one screen.
    """
    table = efficiency_table(study)
    kept = [at for at, column in enumerate(table.columns) if any(row[at] is not None for row in table.rows)]
    rows = [[row[at] for at in kept] for row in table.rows]
    print_table(console, Table([table.columns[at] for at in kept], rows, table.reasons), study.name)
    for told in filter(None, (factors_line(study.efficiency), cores_sentence(study.efficiency, runs))):
        print_line(console, told, "dim")
    for verdict in study_verdicts(study, runs):
        print_verdict(console, verdict)


def _print_waterfall(console: Console, fall: Waterfall, activity: str | None) -> None:
    title = f"{fall.series}: from {devices(fall.from_world_size, activity)} to {devices(fall.to_world_size, activity)}"
    title = f"{title}, in the profiled steps"  # the table above is of the measured ones
    columns = [
        Column("part", "the step's growth"),
        Column("ms", "ms a step", "", 2),
        Column("share", "% of what grew", "", 1, 100),
    ]
    shared = fall.growth_ms > 0 and not grew_within_noise(fall)
    steps = waterfall_steps(fall)
    whole = lengthened_ms(steps)
    rows: list[list[Cell]] = [[f"step of {fall.from_world_size}", fall.from_step_ms, None]]
    rows += [
        [f"+ {part.name}", ms, ms / whole if shared else None]
        if ms >= 0
        else [f"- {part.shrunk or part.name}", -ms, None]
        for part, ms in steps
        if abs(ms) >= 0.005
    ]
    rows.append([f"step of {fall.to_world_size}", fall.to_step_ms, None])
    print_table(console, Table(columns, rows), title, blank_absent=True)
