"""Collectives: in training beside the sweep, and the sweep alone, each under the ceiling of the links."""

from collections.abc import Sequence
from typing import Any

from scalescope.records.console import counted
from scalescope.records.rows import SweepRow
from scalescope.report.drawing.numbers import percent, rate, size
from scalescope.report.drawing.palette import category
from scalescope.report.drawing.panel import Key, Panel, drawing
from scalescope.report.report_data import ReportData
from scalescope.report.sentences import sweep_verdict
from scalescope.report.views import collectives_table, devices, run_label, sizes_of, sweep_table, sweep_variant
from scalescope.scaling.answer import RunAnalysis

_TRAINING = "in training"


def training_panels(data: ReportData, legends: bool) -> list[Panel]:
    """Return a panel a run: the busbw of its collectives by size, over the sweep's curve of the same group size."""
    panels = []
    for run in data.answers:
        if run.world_size < 2 or not run.collectives:
            continue  # one rank's collectives move nothing
        table = collectives_table(run)
        fields = [column.key for column in table.columns]
        kinds: list[dict[str, Any]] = [dict(zip(fields, row, strict=True)) for row in table.rows]
        placed = [kind for kind in kinds if kind["bus_gb_s"] and kind["bytes"]]
        operations = list(dict.fromkeys(str(kind["operation"]) for kind in placed))
        curves = [row for row in _curves(data, operations) if row.group_size == run.world_size]
        groups = [(f"{name}, {_TRAINING}", category(index)) for index, name in enumerate(operations)]
        groups += [
            (f"{name}, alone", category(index + 3))
            for index, name in enumerate(dict.fromkeys(row.operation for row in curves))
        ]
        points = [
            {"bytes": kind["bytes"], "bus": kind["bus_gb_s"], "group": f"{kind['operation']}, {_TRAINING}",
             "time": kind["transfer_us"], "size": size(int(kind["bytes"])), "calls": kind["calls"],
             "in_situ": percent(float(kind["in_situ_efficiency"])) if kind["in_situ_efficiency"] else "not known"}
            for kind in placed
        ]  # fmt: skip
        lines = [_curve_row(row, f"{row.operation}, alone") for row in curves]
        ceilings = _link_ceiling(data, curves)
        charts = drawing() if points else None
        panels.append(
            Panel(
                f"collectives-{run.name}",
                run_label(run),
                _training_sentence(run, kinds, bool(curves)),
                table,
                [charts.bus_bandwidth(lines, groups, ceilings, points, legend=legends)] if charts else [],
                [Key(name, colour) for name, colour in groups],
                "" if points else f"no collective's bandwidth is known: {table.reasons['bus_gb_s']}",
                subject=data.series_of(run),
            )
        )
    return panels


def sweep_panels(data: ReportData, legends: bool) -> list[Panel]:
    """Return a panel an operation: busbw and time against size, a line a group."""
    panels = []
    for operation in dict.fromkeys(row.operation for row in data.sweep):
        rows = [row for row in data.sweep if row.operation == operation]
        measured = [row for row in rows if row.bus_gb_s is not None and row.time_us is not None and row.bytes > 0]
        names = list(dict.fromkeys(_curve_name(row, rows) for row in measured))
        groups = [(name, category(index)) for index, name in enumerate(names)]
        lines = [_curve_row(row, _curve_name(row, rows)) for row in measured]
        verdict = sweep_verdict(rows)
        charts = drawing() if measured else None
        panels.append(
            Panel(
                f"sweep-{operation}",
                operation,
                verdict.text,
                sweep_table(rows),
                [
                    charts.bus_bandwidth(lines, groups, _link_ceiling(data, measured), legend=legends),
                    charts.call_time(lines, groups, legend=legends),
                ]
                if charts
                else [],
                [Key(name, colour) for name, colour in groups],
                "" if measured else f"no point of {sizes_of(rows)} was measured; the table says why",
            )
        )
    return panels


def _training_sentence(run: RunAnalysis, kinds: list[dict[str, Any]], compared: bool) -> str:
    inside = [call for call in run.collectives if call.step is not None] or run.collectives
    found = len({(call.operation, call.bytes, call.dtype, call.group_size) for call in inside})
    where = devices(run.world_size, run.activity)
    of_kinds = "one kind" if found == 1 else f"{found} kinds"
    text = f"{counted(len(inside), 'collective')} of {of_kinds} ran in the profiled steps on {where}"
    if earlier := len(run.collectives) - len(inside):
        text += f" and {earlier} {'was' if earlier == 1 else 'were'} launched before them"
    sized = [kind for kind in kinds if kind["bytes"] and kind["bus_gb_s"]]
    if not sized:
        return f"{text}."
    largest = max(sized, key=lambda kind: kind["bytes"])
    text += (
        f"; the largest, {largest['operation']} of {size(largest['bytes'])}, moves at {rate(largest['bus_gb_s'])} GB/s "
        f"busbw"
    )
    if largest["in_situ_efficiency"]:
        text += f", {percent(largest['in_situ_efficiency'])} of its speed alone"
    return f"{text}. The line is the same operation with nothing else running." if compared else f"{text}."


def _curves(data: ReportData, operations: Sequence[str]) -> list[SweepRow]:
    """Return the sweep's plain curves to lay beside training: in place, eager, one dtype an operation and group."""
    found: dict[tuple[str, int], list[SweepRow]] = {}
    for row in data.sweep:
        if row.operation in operations and row.bus_gb_s is not None and row.execution == "eager":
            rows = found.setdefault((row.operation, row.group_size), [])
            if not rows or (rows[0].dtype, sweep_variant(rows[0])) == (row.dtype, sweep_variant(row)):
                rows.append(row)
    return [row for rows in found.values() for row in rows]


def _link_ceiling(data: ReportData, rows: Sequence[SweepRow]) -> list[dict[str, Any]]:
    """Return the ceilings that the rows carry; without rows the device's own link, where it is known."""
    known = {(row.ceiling_gb_s, row.ceiling_assumes or "") for row in rows if row.ceiling_gb_s}
    if not known and not rows:
        infos = [run.info for run in data.runs]
        links = {info.ceilings.link_gb_s for info in infos if info.ceilings and info.ceilings.link_gb_s}
        known = {(link, "the device's link") for link in links}
    return [
        {"value": value, "label": f"ceiling {rate(value or 0)} GB/s{f' ({assumes})' if assumes else ''}"}
        for value, assumes in sorted(known, key=lambda item: item[0] or 0)
    ]


def _curve_row(row: SweepRow, group: str) -> dict[str, Any]:
    return {"bytes": row.bytes, "bus": row.bus_gb_s, "time": row.time_us, "group": group, "size": size(row.bytes)}


def _curve_name(row: SweepRow, rows: Sequence[SweepRow]) -> str:
    """Return `4 ranks`, and what else tells this row's curve from the others'."""
    more = [row.dtype] if len({other.dtype for other in rows}) > 1 else []
    more += [sweep_variant(row)] if len({sweep_variant(other) for other in rows}) > 1 else []
    return ", ".join([f"{row.group_size} ranks", *more])
