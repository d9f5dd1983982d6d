"""Two studies or runs side by side: what changed, by how much, and where in the step it changed.

Only like is laid beside like: training runs of the same series and rank count, sweep points of the same operation,
size, dtype, group and variant. What one side lacks is named, not guessed.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalescope.records.files import write_atomic
from scalescope.records.folder import RunFolder
from scalescope.records.rows import SweepRow
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import READS_AS_ZERO_MS, figure, listing, milliseconds, percent, rate, size
from scalescope.report.drawing.palette import category
from scalescope.report.drawing.panel import Key, Panel, Section, drawing
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.report.html import facts_of, machines_of
from scalescope.report.page import Card, Figure, Machine, Page, render
from scalescope.report.report_data import ReportData, RunData, read_report_data
from scalescope.report.sentences import Level, Verdict
from scalescope.report.views import devices, sweep_variant
from scalescope.scaling.answer import PARTS, RunAnalysis

#: A change below this share is not worth a verdict: runs of the same thing differ by as much.
_NOISE = 0.01
_NO_PEAK = "not known on one side"


@dataclass(frozen=True)
class RunPair:
    """The same series at the same rank count, on both sides."""

    series: str
    world_size: int
    left: RunData
    right: RunData

    @property
    def name(self) -> str:
        answer = self.left.answer or self.right.answer
        return f"{self.series} · {devices(self.world_size, answer.activity if answer else None)}"

    @property
    def answers(self) -> tuple[RunAnalysis, RunAnalysis] | None:
        """Both analyses, where there are both."""
        if self.left.answer is None or self.right.answer is None:
            return None
        return self.left.answer, self.right.answer


def write_comparison(left: RunFolder, right: RunFolder, out: Path) -> Path:
    """Write the page that lays `right` beside `left`, the baseline; return its path.

    Raises UserError where one of them is no run folder, OSError where the page cannot be written.
    """
    write_atomic(out, render(comparison(read_report_data(left), read_report_data(right))))
    return out


def comparison(left: ReportData, right: ReportData) -> Page:
    """Return the page: a verdict a pair, then steps, parts, sweeps and what is different about the two."""
    names = _names(left, right)
    pairs = pairs_of(left, right)
    found = [
        Section("scaling", "What changed", [_throughput_panel(pairs, names)] if pairs else []),
        Section(
            "partition", "Where in the step", [panel for pair in pairs for panel in _partition_panels(pair, names)]
        ),
        Section("sweep", "Collectives alone", _sweep_panels(left, right, names)),
        Section("configuration", "What is different about them", [_difference_panel(left, right, names)]),
    ]
    return Page(
        name=f"{names[1]} beside {names[0]}",
        facts=f"{names[0]}: {facts_of(left)} — {names[1]}: {facts_of(right)}",
        cards=_cards(pairs, left, right, names),
        notes=[*left.notes, *right.notes, *_unpaired(left, right, names)],
        sections=[section for section in found if section.panels],
        machines=[
            Machine(f"{name}: {machine.title}", machine.pairs, machine.devices, machine.texts)
            for name, data in zip(names, (left, right), strict=True)
            for machine in machines_of(data)
        ],
    )


def pairs_of(left: ReportData, right: ReportData) -> list[RunPair]:
    """Return the runs that both sides have: same series, same rank count."""
    there = {(series, run.info.world_size): run for series, runs in right.by_series().items() for run in runs}
    return [
        RunPair(series, run.info.world_size or 0, run, there[series, run.info.world_size])
        for series, runs in left.by_series().items()
        for run in runs
        if (series, run.info.world_size) in there
    ]


def _names(left: ReportData, right: ReportData) -> tuple[str, str]:
    return (left.name, right.name) if left.name != right.name else (f"A ({left.name})", f"B ({right.name})")


def _rates(pair: RunPair) -> tuple[float, float, str] | None:
    """Return both sides' throughput in the unit both have; None where one of them has none."""
    done = [run.answer.throughput if run.answer else None for run in (pair.left, pair.right)]
    one, other = done
    if one is None or other is None:
        return None
    if one.tokens_per_s is not None and other.tokens_per_s is not None:
        return one.tokens_per_s, other.tokens_per_s, "tokens/s"
    return one.samples_per_s, other.samples_per_s, "samples/s"


def _cards(pairs: Sequence[RunPair], left: ReportData, right: ReportData, names: tuple[str, str]) -> list[Card]:
    largest = {pair.series: pair for pair in sorted(pairs, key=lambda pair: pair.world_size)}
    cards = [_pair_card(pair, names) for pair in largest.values()]
    if sweep := _sweep_verdict(left, right, names):
        cards.append(Card(sweep))
    nothing = Verdict("comparison", "unknown", f"{names[0]} and {names[1]} have nothing in common to compare.")
    return cards or [Card(nothing)]


def _pair_card(pair: RunPair, names: tuple[str, str]) -> Card:
    rates = _rates(pair)
    if rates is None:
        return Card(Verdict(pair.series, "unknown", f"{pair.name}: one side has no throughput to compare."))
    before, after, unit = rates
    change = after / before - 1
    level: Level = "unknown" if abs(change) < _NOISE else "good" if change > 0 else "poor"
    if level == "unknown":
        headline = f"{pair.name}: {names[1]} is as fast as {names[0]}, within 1%."
    else:
        more = "faster" if change > 0 else "slower"
        headline = f"{pair.name}: {names[1]} is {percent(abs(change))} {more} than {names[0]}."
    figures = [Figure(names[0], rate(before), unit), Figure(names[1], rate(after), unit)]
    return Card(Verdict(pair.series, level, headline, tuple(_moved(pair))), figures)


def _moved(pair: RunPair) -> list[str]:
    """Return one sentence with the parts of the step that changed most, rank-mean, in ms a step."""
    changes = part_changes(pair)
    if changes is None:
        return ["Where the change lies is not known: one side has no analysed trace."]
    total = sum(change for _, _, _, change in changes)
    ranked = sorted(changes, key=lambda change: -abs(change[3]))
    parts_changed = [
        f"{part.name} {'+' if change > 0 else '−'}{milliseconds(abs(change))}"
        for part, _, _, change in ranked[:3]
        if abs(change) >= max(0.05 * abs(total), READS_AS_ZERO_MS)
    ]
    direction = "longer" if total > 0 else "shorter"
    differs = abs(total) >= READS_AS_ZERO_MS
    text = f"In the traces a step is {f'{milliseconds(abs(total))} {direction}' if differs else 'as long'}"
    return [f"{text}: {listing(parts_changed)}." if parts_changed else f"{text}."]


def part_changes(pair: RunPair) -> list[tuple[parts.Part, float, float, float]] | None:
    """Return each part's rank-mean ms a step on both sides, and the change; they add up to the step's change."""
    if pair.answers is None or not all(answer.ranks for answer in pair.answers):
        return None
    left, right = (_mean_parts(answer) for answer in pair.answers)
    return [(parts.named(key), left[key], right[key], right[key] - left[key]) for key in PARTS]


def _mean_parts(run: RunAnalysis) -> dict[str, float]:
    steps = sum(rank.steps for rank in run.ranks) or 1
    return {key: sum(rank.part_ms(key) for rank in run.ranks) / steps for key in PARTS}


def _throughput_panel(pairs: Sequence[RunPair], names: tuple[str, str]) -> Panel:
    columns = [
        Column("run", "run"),
        Column("left_per_s", f"{names[0]}", "", 1),
        Column("right_per_s", f"{names[1]}", "", 1),
        Column("unit", "unit"),
        Column("change", "change", "%", 1, 100),
        Column("left_mfu", f"MFU, {names[0]}", "%", 1, 100),
        Column("right_mfu", f"MFU, {names[1]}", "%", 1, 100),
    ]
    rows: list[list[Cell]] = []
    for pair in pairs:
        rates = _rates(pair)
        mfu = [run.answer.throughput.mfu if run.answer and run.answer.throughput else None
               for run in (pair.left, pair.right)]  # fmt: skip
        before, after, unit = rates or (None, None, "")
        change = after / before - 1 if before and after is not None else None
        rows.append([pair.name, before, after, unit, change, *mfu])
    reasons = dict.fromkeys(("left_per_s", "right_per_s", "change"), "one side has no steady steps")
    reasons |= dict.fromkeys(("left_mfu", "right_mfu"), _NO_PEAK)
    known = [pair for pair in pairs if _rates(pair)]
    sentence = f"Throughput of {len(known)} runs that both have, {names[1]} against {names[0]}."
    return Panel("comparison-throughput", "Throughput", sentence, Table(columns, rows, reasons))


def _partition_panels(pair: RunPair, names: tuple[str, str]) -> list[Panel]:
    changes = part_changes(pair)
    if changes is None:
        return []
    columns = [
        Column("part", "part"),
        Column("left_ms", names[0], "ms", 2),
        Column("right_ms", names[1], "ms", 2),
        Column("change_ms", "change", "ms", 2),
    ]
    rows: list[list[Cell]] = [[part.name, before, after, change] for part, before, after, change in changes]
    before_ms, after_ms = sum(before for _, before, _, _ in changes), sum(after for _, _, after, _ in changes)
    rows.append(["step", before_ms, after_ms, after_ms - before_ms])
    present = [part for part, before, after, _ in changes if before > 0 or after > 0]
    bars = [
        {"label": name, "part": part.name, "order": order, "ms": ms, "share": ms / whole if whole else 0.0}
        for order, (part, before, after, _) in enumerate(changes)
        for name, ms, whole in ((names[0], before, before_ms), (names[1], after, after_ms))
        if part in present
    ]
    rest = [bar for bar in bars if bar["part"] != parts.BY_KEY["compute"].name]
    shades = [(part.name, f"var({part.variable})") for part in present]
    charts = drawing()
    return [
        Panel(
            f"comparison-{pair.series}-{pair.world_size}",
            pair.name,
            _moved(pair)[0],
            Table(columns, rows),
            [
                charts.partition(bars, names, shades, "ms a step, mean of the ranks"),
                charts.partition(rest, names, shades, "ms a step that are not compute"),
            ]
            if charts
            else [],
            [Key(part.name, f"var({part.variable})", part.meaning) for part in present],
        )
    ]


def _points(left: ReportData, right: ReportData) -> list[tuple[SweepRow, SweepRow]]:
    there = {_point_key(row): row for row in right.sweep if row.bus_gb_s is not None}
    return [
        (row, there[_point_key(row)]) for row in left.sweep if row.bus_gb_s is not None and _point_key(row) in there
    ]


def _point_key(row: SweepRow) -> tuple[str, int, str, int, str]:
    return row.operation, row.bytes, row.dtype, row.group_size, sweep_variant(row)


def _sweep_verdict(left: ReportData, right: ReportData, names: tuple[str, str]) -> Verdict | None:
    points = _points(left, right)
    if not points:
        return None
    one, other = max(points, key=lambda pair: (pair[0].group_size, pair[0].bytes))
    change = (other.bus_gb_s or 0.0) / (one.bus_gb_s or 1.0) - 1
    level: Level = "unknown" if abs(change) < _NOISE else "good" if change > 0 else "poor"
    return Verdict(
        "sweep",
        level,
        f"{one.operation} of {size(one.bytes)} on {one.group_size} ranks: {rate(other.bus_gb_s or 0)} GB/s busbw, "
        f"where {names[0]} has {rate(one.bus_gb_s or 0)} ({'+' if change >= 0 else '−'}{percent(abs(change))}).",
    )


def _sweep_panels(left: ReportData, right: ReportData, names: tuple[str, str]) -> list[Panel]:
    panels = []
    points = _points(left, right)
    for operation in dict.fromkeys(row.operation for row, _ in points):
        own = [pair for pair in points if pair[0].operation == operation]
        group = max(pair[0].group_size for pair in own)
        drawn = [pair for pair in own if pair[0].group_size == group]
        lines: list[dict[str, Any]] = [
            {"bytes": row.bytes, "bus": row.bus_gb_s, "time": row.time_us, "group": name, "size": size(row.bytes)}
            for side, name in enumerate(names)
            for row in (pair[side] for pair in drawn)
        ]
        groups = [(name, category(index)) for index, name in enumerate(names)]
        rows: list[list[Cell]] = [
            [one.group_size, one.bytes, one.dtype, sweep_variant(one), one.bus_gb_s, other.bus_gb_s,
             (other.bus_gb_s or 0.0) / one.bus_gb_s - 1 if one.bus_gb_s else None, one.time_us, other.time_us]
            for one, other in own
        ]  # fmt: skip
        columns = [
            Column("group_size", "ranks", digits=0),
            Column("bytes", "size", "B", 0),
            Column("dtype", "type"),
            Column("variant", "variant"),
            Column("left_bus_gb_s", f"busbw, {names[0]}", "GB/s", 2),
            Column("right_bus_gb_s", f"busbw, {names[1]}", "GB/s", 2),
            Column("change", "change", "%", 1, 100),
            Column("left_time_us", f"time, {names[0]}", "µs", 2),
            Column("right_time_us", f"time, {names[1]}", "µs", 2),
        ]
        charts = drawing()
        panels.append(
            Panel(
                f"comparison-{operation}",
                operation,
                f"busbw of {len(own)} points that both have; the chart shows {group} ranks.",
                Table(columns, rows, {"change": "the baseline moved nothing"}),
                [charts.bus_bandwidth(lines, groups, []), charts.call_time(lines, groups)] if charts else [],
                [Key(name, colour) for name, colour in groups],
            )
        )
    return panels


def _difference_panel(left: ReportData, right: ReportData, names: tuple[str, str]) -> Panel:
    """Return what differs in environment and configuration: the first suspects for a change."""
    rows: list[list[Cell]] = []
    sides = [dict(pair for machine in machines_of(data) for pair in machine.pairs) for data in (left, right)]
    for key in sorted({*sides[0], *sides[1]}):
        if sides[0].get(key) != sides[1].get(key):
            rows.append([key, sides[0].get(key, "not set"), sides[1].get(key, "not set")])
    for pair in pairs_of(left, right):
        changed = difflib.ndiff(pair.left.config.splitlines(), pair.right.config.splitlines())
        lines = [line for line in changed if line[:2] in ("- ", "+ ")]
        for line in lines:
            cells = (line[2:].strip(), "") if line.startswith("- ") else ("", line[2:].strip())
            rows.append([f"config of {pair.name}", *cells])
    sentence = (
        f"{figure(len(rows), 0)} differences in environment and configuration."
        if rows
        else "Environment and configuration are the same on both sides."
    )
    columns = [Column("what", "what"), Column("left", names[0]), Column("right", names[1])]
    return Panel("comparison-differences", "Environment and configuration", sentence, Table(columns, rows))


def _unpaired(left: ReportData, right: ReportData, names: tuple[str, str]) -> list[str]:
    known = {(pair.series, pair.world_size) for pair in pairs_of(left, right)}
    return [
        f"only {name} has {series} at world size {run.info.world_size}"
        for name, data in zip(names, (left, right), strict=True)
        for series, runs in data.by_series().items()
        for run in runs
        if (series, run.info.world_size) not in known
    ]
