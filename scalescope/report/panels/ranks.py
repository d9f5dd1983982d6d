"""Rank by rank: the partition of the mean step, and who waits in which step."""

import statistics
from collections.abc import Sequence
from typing import Any

from scalescope.report.as_run.recording import as_run_sentence, as_run_table
from scalescope.report.as_run.shown import (
    OTHER_STEPS,
    as_profiled,
    differs,
    is_shown_alone,
    name_of_step,
    reads_otherwise,
    shown_step,
)
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import milliseconds, percent
from scalescope.report.drawing.panel import Key, Panel, drawing, of_run
from scalescope.report.drawing.tables import Cell, Column, Table, stacked
from scalescope.report.panels.compute_lines import on_cores_clause, waits_line
from scalescope.report.replayed import fewer_replayed
from scalescope.report.report_data import ReportData
from scalescope.report.views import devices, partition_table, run_label, step_split_table
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import Split
from scalescope.scaling.as_run.step import step_as_run

_MOST_BARS = 160  # ranks in one chart
_MOST_CELLS = 6_000  # rank × step
#: Which steps a row of the table is of.
_WITHOUT, _PROFILED = "without recording", "as profiled"
_ALARM = 0.05  # of a step waited: full colour


def partition_panels(data: ReportData, legends: bool) -> list[Panel]:
    """Return a panel a series: each rank's mean step as a stack of parts, and beside it the parts but compute."""
    panels = []
    for name, members in data.by_series().items():
        runs = [run.answer for run in members if run.answer is not None and run.answer.quality.verdict != "unusable"]
        labels: list[str] = []
        rows: list[dict[str, Any]] = []
        for run, title in zip(runs, labels_of(runs), strict=True):
            as_run = {one.rank: one for one in step_as_run(run)[1]} if differs(run) else {}
            for rank in run.ranks:
                if len(labels) >= _MOST_BARS:
                    break
                # of one run the ranks alone: labels have little room, and their ends tell them apart
                own = f"rank {rank.rank}" if len(runs) == 1 else f"{title} · rank {rank.rank}"
                label = f"{own}, {_PROFILED}" if rank.rank in as_run else own
                labels.append(label)
                rows += _bar(label, rank, max(rank.steps, 1))
                if rank.rank in as_run:
                    labels.append(f"{own}, {name_of_step(run)}")
                    rows += _bar(labels[-1], as_run[rank.rank], 1)
        if not rows:
            continue
        present = [part for part in parts.ALL if any(row["part"] == part.name and row["ms"] > 0 for row in rows)]
        rows = [row for row in rows if row["part"] in {part.name for part in present}]
        legend = [Key(part.name, f"var({part.variable})", part.meaning) for part in present]
        table = stacked([of_run(one, title) for one, title in zip(_tables(runs), labels_of(runs), strict=True)])
        shades = [(part.name, f"var({part.variable})") for part in present]
        rest = [row for row in rows if row["part"] != present[0].name]
        charts = drawing()
        panels.append(
            Panel(
                f"partition-{name}",
                name,
                " ".join(
                    filter(
                        None,
                        (
                            _partition_sentence(runs[-1]),
                            _waits_sentence(runs[-1]),
                            as_run_sentence(runs[-1]),
                            _of_table(runs),
                        ),
                    )
                ),
                table or Table([], []),
                [
                    charts.partition(rows, labels, shades, "ms a step", legends),
                    charts.partition(rest, labels, shades, f"ms a step that are not {present[0].name}", legends),
                ]
                if charts
                else [],
                legend,
                subject=name,
            )
        )
    return panels


def _waits_sentence(run: RunAnalysis) -> str:
    """Return what of the bars' compute ranks wait for cores, which no trace tells where; "" where none is told to."""
    told = waits_line(run)
    return f"{told[:1].upper()}{told[1:]}" if run.world_size <= _MOST_BARS else ""


def _of_table(runs: Sequence[RunAnalysis]) -> str:
    """Return of which steps the table is, where the sentence before it is of a step without recording; else ""."""
    if not is_shown_alone(runs[-1]):
        return ""
    fewer = any(fewer_replayed(run) is not None for run in runs)
    return (
        f"The table has both: those steps without recording, and{' all' if fewer else ''} steps as profiled, recording "
        "included."
    )


def _tables(runs: Sequence[RunAnalysis]) -> list[Table]:
    """Return each run's partition: as profiled; where a step without recording is told of any, that one before it, as a
    terminal has it, and which each row is of."""
    if not any(map(is_shown_alone, runs)):
        return [partition_table(run) for run in runs]
    tables = []
    for run in runs:
        whole = partition_table(run)
        at = {column.key: place for place, column in enumerate(whole.columns)}
        own = as_run_table(run) if is_shown_alone(run) else Table(whole.columns, [])
        rows: list[list[Cell]] = []
        for row in own.rows:
            known = {column.key: cell for column, cell in zip(own.columns, row, strict=True)}
            known["steps"] = run.as_run.steps if run.as_run is not None else None
            rows.append([_WITHOUT, *(known.get(key) for key in at)])
        rows += [[_PROFILED, *row] for row in whole.rows]
        reasons = whole.reasons | dict.fromkeys(("communication_ms", "before_window_ms"), "told as profiled alone")
        reasons["overlap_fraction"] = f"{whole.reasons.get('overlap_fraction', '')}, or told as profiled alone"
        tables.append(Table([Column("of", "which"), *whole.columns], rows, reasons, whole.note))
    return tables


def _bar(label: str, split: Split, steps: int) -> list[dict[str, Any]]:
    """Return the rows of one bar: a rank's parts of a mean step."""
    return [
        {"label": label, "part": part.name, "order": order, "ms": split.part_ms(part.key) / steps,
         "share": split.part_ms(part.key) / split.window_ms if split.window_ms else 0.0}
        for order, part in enumerate(parts.ALL)
    ]  # fmt: skip


def labels_of(runs: list[RunAnalysis]) -> list[str]:
    """Return each run's rank count as its label; with its folder's name where two runs have the same count."""
    plain = [devices(run.world_size, run.activity) for run in runs]
    return [
        label if plain.count(label) == 1 else f"{label}, {run.name}" for label, run in zip(plain, runs, strict=True)
    ]


def wait_panels(data: ReportData) -> list[Panel]:
    """Return a panel a run: rank × step, the stronger the colour the longer the exposed wait."""
    panels = []
    for run in data.answers:
        if run.world_size < 2 or not run.steps or run.quality.verdict == "unusable":
            continue
        split = any(row.exposed_wait_ms or row.exposed_transfer_ms for row in run.steps)
        key = "exposed_wait" if split else "exposed_unsplit"
        title = parts.named(key).name
        rows = [
            {"rank": row.rank, "step": row.step, "ms": row.part_ms(key), "length": row.window_ms} for row in run.steps
        ]
        worst = max(run.steps, key=lambda row: row.part_ms(key))
        sentence = (
            f"The longest {title}{as_profiled(run)} is {milliseconds(worst.part_ms(key))}, on rank {worst.rank} in "
            f"step {worst.step}."
            if worst.part_ms(key) > 0
            else f"No rank has any {title} in the profiled steps."
        )
        if not split and worst.part_ms(key) > 0:
            sentence += " Waiting and moving could not be told apart in these traces."
        # a wait that is a hundredth of a step must not look like an alarm
        full = max(worst.part_ms(key), _ALARM * worst.window_ms)
        many = len(rows) > _MOST_CELLS
        charts = drawing() if not many else None
        panels.append(
            Panel(
                f"waits-{run.name}",
                run_label(run),
                sentence,
                step_split_table(run),
                [charts.heat_map(rows, f"{title}, ms", full)] if charts else [],
                [Key(f"{milliseconds(full)} of {title} or more; paler is less", "var(--heat)")],
                f"{len(rows):,} cells are too many for one picture; the table has them." if many else "",
                subject=data.series_of(run),
            )
        )
    return panels


def _partition_sentence(run: RunAnalysis) -> str:
    whole, per = ("step", " a step") if run.steps_by is not None else ("recorded stretch, without steps,", "")
    alone = is_shown_alone(run)  # then that is the one length of profiled steps that is told
    ranks = step_as_run(run)[1] if alone else run.ranks
    steps = len(ranks) if alone else sum(rank.steps for rank in run.ranks) or 1
    window = sum(rank.window_ms for rank in ranks) / steps
    means = {part.key: sum(rank.part_ms(part.key) for rank in ranks) / steps for part in parts.ALL}
    compute = means.pop("compute")
    worst = max(means, key=lambda key: means[key])
    which = f" {name_of_step(run)}" if alone else as_profiled(run)
    if alone and reads_otherwise(run):  # the step as run has another length, which is told first
        whole, which = f"profiled {whole}", " without recording"
    own = [one.window_ms for one in shown_step(run)] if not alone and run.steps_by is not None else []
    if own and not differs(run) and abs(statistics.fmean(own) - window) > OTHER_STEPS * window:
        which = ", all profiled ones counted,"  # other sentences are of those that a next one bounds
    text = (
        f"A mean {whole}{which} of {milliseconds(window)} on {devices(run.world_size, run.activity)} is "
        f"{percent(compute / window if window else 0)} compute, {milliseconds(compute)}{on_cores_clause(run)}"
    )
    if means[worst] <= 0:
        return f"{text}, and nothing else."
    return f"{text}; the largest other part is {parts.named(worst).name}, {milliseconds(means[worst])}{per}."
