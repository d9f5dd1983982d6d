"""A sweep on a terminal, under nccl-tests' column names."""

from collections.abc import Sequence

from rich.console import Console

from scalescope.records.rows import READ_HALF, READ_WIDE, SweepRow
from scalescope.records.statistics import decimals
from scalescope.report.drawing.numbers import figure, listing
from scalescope.report.drawing.tables import ABSENT, Cell, Column, Table
from scalescope.report.sentences import sweep_verdict
from scalescope.report.terminal.console import print_line
from scalescope.report.terminal.tables import print_table
from scalescope.report.terminal.verdicts import print_verdict
from scalescope.report.views import (
    sweep_variant,
)


def print_sweep(rows: Sequence[SweepRow], console: Console) -> None:
    """Print a sweep's points a group, under nccl-tests' column names; a point that was not measured says why."""
    if not rows:
        print_line(console, "The sweep has no points yet.", "bold")
        return
    print_verdict(console, sweep_verdict(rows))
    columns = [
        Column("size", "size", "(B)", 0),
        Column("count", "count", "(elements)", 0),
        Column("type", "type"),
        Column("redop", "redop"),
        Column("root", "root", digits=0),
        Column("time", "time", "(us)", 2),
        *([Column("half", "±", "(%)", 1, 100)] if any(row.relative_half is not None for row in rows) else []),
        Column("algbw", "algbw", "(GB/s)", 2),
        Column("busbw", "busbw", "(GB/s)", 2),
        Column("wrong", "#wrong", digits=0),
        *([Column("wide", "")] if any(row.is_wide for row in rows) else []),
    ]
    groups: dict[tuple[str, int, str], list[SweepRow]] = {}
    for row in rows:
        groups.setdefault((row.operation, row.group_size, sweep_variant(row)), []).append(row)
    for (operation, group_size, variant), members in groups.items():
        cells: list[list[Cell]] = [[_sweep_cells(row)[column.key] for column in columns] for row in members]
        print_table(console, Table(columns, cells), f"{operation} on {group_size} ranks, {variant}", grouped=False)
        reasons = dict.fromkeys(
            f"{row.status}: {row.reason or 'no reason given'}" for row in members if not row.time_us
        )
        for reason in reasons:
            sizes = [str(row.bytes) for row in members if f"{row.status}: {row.reason or 'no reason given'}" == reason]
            print_line(console, f"{ABSENT} at {listing(sizes)} B: {reason}", "yellow")
    if any(row.relative_half is not None for row in rows):
        wide = f"; {READ_WIDE}" if any(row.is_wide for row in rows) else ""
        print_line(console, f"{READ_HALF}{wide}.", "dim")


def _sweep_cells(row: SweepRow) -> dict[str, Cell]:
    """Return a point's cells by column; figures with the digits that its interval leaves."""

    def within(value: float | None) -> str | None:
        return None if value is None else figure(value, decimals(value, row.relative_half, 2 if value >= 0.1 else 4))

    return {
        "size": str(row.bytes),
        "count": _text(row.count),
        "type": row.dtype,
        "redop": row.reduction or "none",
        "root": str(-1 if row.root is None else row.root),
        "time": within(row.time_us),
        "half": row.relative_half,
        "algbw": within(row.alg_gb_s),
        "busbw": within(row.bus_gb_s),
        "wrong": row.wrong,
        "wide": "wide" if row.is_wide else "",
    }


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
