"""Collectives in training beside their time alone: how much of it they reach, and to what they lose the rest."""

from collections.abc import Sequence
from typing import Any

from scalescope.report.drawing.numbers import microseconds, percent, size
from scalescope.report.drawing.panel import Key, Panel, drawing
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.report.report_data import ReportData
from scalescope.report.views import devices, run_label
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import InSitu

#: The parts of what a rank sees of a collective: field, name, colour, meaning.
_PARTS = (
    ("ideal_us", "at the best rate", "var(--c1)", "What it would take at the best rate that the sweep reached."),
    ("size_us", "too small for it", "var(--c5)", "What it takes alone beyond that: a larger one would move faster."),
    ("contention_us", "beside compute", "var(--part-compute)", "Of what it takes beyond that, what compute beside "
     "explains, by the sweep's contention axis."),
    ("rest_us", "the rest", "var(--ideal)", "What it takes in training beyond its time alone, otherwise unexplained."),
    ("skew_us", "waiting for ranks", "var(--part-exposed-wait)", "The mean member's wait for the last one."),
)  # fmt: skip
_MOST_BARS = 12
_UNDER = 0.5  # of the transfer under compute: a collective that overlaps


def in_situ_panels(data: ReportData, legends: bool) -> list[Panel]:
    """Return a panel a run: its kinds of collectives from 1 MiB up, each split into what its time goes to."""
    panels = []
    for run in data.answers:
        if not run.in_situ:
            continue
        rows, labels = _bars(run.in_situ)
        present = [part for part in _PARTS if any(row["part"] == part[1] for row in rows)]
        shades = [(name, colour) for _, name, colour, _ in present]
        charts = drawing() if rows else None
        panels.append(
            Panel(
                f"in-situ-{run.name}",
                run_label(run),
                in_situ_sentence(run),
                in_situ_table(run.in_situ),
                [charts.partition(rows, labels, shades, "µs of transfer a call", legends, "size")] if charts else [],
                [Key(name, colour, meaning) for _, name, colour, meaning in present],
                "" if rows else "no collective's time alone is known; the table says why",
                subject=data.series_of(run),
            )
        )
    return panels


def _bars(kinds: Sequence[InSitu]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the chart's rows and its bars' labels, largest size first; sizes that read alike are one bar, their mean.

    What waits for other ranks is no transfer, and has no bar.
    """
    members: dict[str, list[InSitu]] = {}
    for one in sorted(kinds, key=lambda one: -one.bytes):
        if one.efficiency is not None:
            members.setdefault(f"{one.operation} {size(one.bytes)}", []).append(one)
    labels = list(members)[:_MOST_BARS]
    rows: list[dict[str, Any]] = []
    for label in labels:
        calls = sum(one.calls for one in members[label])
        whole = sum((one.transfer_us or 0.0) * one.calls for one in members[label]) / calls
        for order, (field, name, _, _) in enumerate(_PARTS[:-1]):
            us = sum((getattr(one, field) or 0.0) * one.calls for one in members[label]) / calls
            if us > 0:
                rows.append({"label": label, "part": name, "order": order, "ms": us, "share": us / whole})
    return rows, labels


def in_situ_sentence(run: RunAnalysis) -> str:
    """Return what the collectives of a run reach of their speed alone, under compute and by themselves, in words."""
    where = devices(run.world_size, run.activity)
    known = [one for one in run.in_situ if one.efficiency is not None and one.transfer_us is not None]
    if not known:
        reasons = "; ".join(dict.fromkeys(one.reason for one in run.in_situ if one.reason))
        return f"On {where} no collective can be held against its time alone: {reasons}."
    spent = sum((one.transfer_us or 0.0) * one.calls for one in known)
    alone = sum((one.alone_us or 0.0) * one.calls for one in known)
    text = f"On {where} collectives of 1 MiB and more reach {percent(alone / spent)} of what a sweep has for them alone"
    split = [(one, one.under_compute) for one in known if one.under_compute is not None]
    under = [one for one, share in split if share >= _UNDER]
    bare = [one for one, share in split if share < _UNDER]
    if under and bare:
        text += f": {percent(_reached(under))} where compute runs beside, {percent(_reached(bare))} where it does not"
    worst = max(known, key=lambda one: ((one.rest_us or 0.0) + (one.contention_us or 0.0)) * one.calls)
    lost = (worst.rest_us or 0.0) + (worst.contention_us or 0.0)
    if lost > 0:
        text += f". Most is lost in {worst.operation} of {size(worst.bytes)}, {microseconds(lost)} a call"
    if any(one.ran_on == "copy_engines" for one in known):
        text += ". On copy engines a trace holds the copies alone, and the sweep's time the hand-shake before them, too"
    if unknown := len(run.in_situ) - len(known):
        text += f". {unknown} of {len(run.in_situ)} kinds cannot be compared; the table says why"
    return f"{text}."


def in_situ_table(rows: Sequence[InSitu]) -> Table:
    """One row a kind of collective: its efficiency, and where its time goes, in µs a call."""
    columns = [
        Column("operation", "operation"),
        Column("bytes", "size", "B", 0),
        Column("dtype", "dtype"),
        Column("group_size", "ranks", digits=0),
        Column("calls", "calls", digits=0),
        Column("ran_on", "ran on"),
        Column("efficiency", "of its speed alone", "%", 1, 100),
        Column("under_compute", "under compute", "%", 0, 100),
        Column("transfer_us", "transfer", "µs", 1),
        Column("alone_us", "alone", "µs", 1),
        *(Column(field, name, "µs", 1) for field, name, _, _ in _PARTS),
        Column("reason", "why not"),
    ]
    cells: list[list[Cell]] = [
        [one.operation, one.bytes, one.dtype, one.group_size, one.calls, one.ran_on.replace("_", " "), one.efficiency,
         one.under_compute, one.transfer_us, one.alone_us, *(getattr(one, field) for field, _, _, _ in _PARTS),
         one.reason or ""]
        for one in rows
    ]  # fmt: skip
    why = "; ".join(dict.fromkeys(one.reason for one in rows if one.reason)) or "the trace does not tell"
    reasons = dict.fromkeys((column.key for column in columns), why)
    reasons["contention_us"] = "no sweep has this operation beside compute: scalescope sweep contention=[none,matmul]"
    reasons["dtype"] = "the trace does not hold its data type"
    reasons["group_size"] = "the trace does not hold its process group"
    return Table(columns, cells, reasons)


def _reached(rows: Sequence[InSitu]) -> float:
    spent = sum((one.transfer_us or 0.0) * one.calls for one in rows)
    return sum((one.alone_us or 0.0) * one.calls for one in rows) / spent if spent else 0.0
