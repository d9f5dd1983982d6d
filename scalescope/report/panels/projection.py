"""The step on other GPU counts: projections with their intervals, and the test of them on counts that were measured."""

from collections.abc import Iterable, Sequence
from typing import Any

from scalescope.records.statistics import with_ranges
from scalescope.report.drawing.numbers import figure, listing, milliseconds, percent
from scalescope.report.drawing.palette import category
from scalescope.report.drawing.panel import Key, Panel, drawing
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.report.report_data import ReportData
from scalescope.report.views import activities, devices, points_of
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.projected import Projected
from scalescope.scaling.study_answer import StudyAnalysis


def projection_panels(data: ReportData) -> list[Panel]:
    """Return a panel a series: what was measured, what is projected, and how projections came out."""
    study = data.study
    if study is None or study.projection is None:
        return []
    shown = [*study.projection.points, *study.projection.backtests]
    kinds = activities(data.answers)
    return [
        _panel(study, series, next((kinds.get(point.run) for point in points_of(study, series)), None))
        for series in dict.fromkeys(one.series for one in shown)
    ]


def expectation_sentence(points: Sequence[Projected], activity: str | None) -> str:
    """Return the efficiency to expect on more ranks, in words; nothing where all is refused."""
    said = [
        f"{devices(one.world_size, activity)} {_between(one.efficiency, percent)}, "
        f"{milliseconds(one.step_ms.value)} a step"
        for one in points
        if one.efficiency is not None and one.step_ms is not None
    ]
    smallest = min((one.from_world_sizes[0] for one in points if one.from_world_sizes), default=1)
    against = f" against {devices(smallest, activity)}" if smallest > 1 else ""
    return f"Efficiency to expect{against}: {'; '.join(said)}." if said else ""


def projection_sentence(points: Sequence[Projected], backtests: Sequence[Projected], activity: str | None) -> str:
    """Return what a series would do on more ranks, how far projections were off, and what is refused, in words."""
    texts = []
    shown = [one for one in points if one.step_ms is not None]
    if shown:
        texts.append(expectation_sentence(points, activity))
    if backtests:
        worst = max(backtests, key=lambda one: abs(one.off or 0.0))
        inside = sum(bool(one.inside) for one in backtests)
        texts.append(
            f"Tested on what was measured: {_projections(len(backtests))} from fewer ranks, {inside} of them with the "
            f"measured step inside the interval; the worst is {_off(worst.off or 0.0)} "
            f"({_counts(worst.from_world_sizes)} → {devices(worst.world_size, activity)})."
        )
    elif shown:
        texts.append("Not tested: that takes three measured counts, so that the largest can be projected.")
    for reason in dict.fromkeys(one.refused for one in points if one.refused):
        counts = [devices(one.world_size, activity) for one in points if one.refused == reason]
        texts.append(f"{listing(counts)}: refused, since {reason}.")
    assumed = with_ranges(text for one in shown for text in one.assumed)
    if assumed:
        texts.append(f"Assumed: {'; '.join(assumed)}.")
    return " ".join(texts)


def projection_table(rows: Sequence[Projected]) -> Table:
    """One row a projection: the step, what it is made of beyond the largest measured run, and what was measured."""
    columns = [
        Column("series", "series"),
        Column("from", "from"),
        Column("world_size", "ranks", digits=0),
        Column("step_ms", "step", "ms", 2),
        Column("step_low_ms", "at least", "ms", 2),
        Column("step_high_ms", "at most", "ms", 2),
        Column("efficiency", "efficiency", "%", 1, 100),
        Column("efficiency_low", "at least", "%", 1, 100),
        Column("efficiency_high", "at most", "%", 1, 100),
        Column("compute_ms", "slower compute", "ms", 2),
        Column("transfer_ms", "exposed transfer", "ms", 2),
        Column("wait_ms", "exposed wait", "ms", 2),
        Column("measured_ms", "measured", "ms", 2),
        Column("off", "off", "%", 1, 100),
        Column("inside", "inside"),
    ]
    cells: list[list[Cell]] = []
    for one in rows:
        changes = {part.part: part.change_ms.value for part in one.parts}
        step, share = one.step_ms, one.efficiency
        cells.append(
            [one.series, _counts(one.from_world_sizes), one.world_size,
             *((step.value, step.low, step.high) if step else (None, None, None)),
             *((share.value, share.low, share.high) if share else (None, None, None)),
             *(changes.get(part) for part in ("compute", "exposed_transfer", "exposed_wait")),
             one.measured_step_ms, one.off, None if one.inside is None else "yes" if one.inside else "no"]
        )  # fmt: skip
    reasons = dict.fromkeys(("measured_ms", "off", "inside"), "this count was not measured")
    laws = dict.fromkeys(part.assumes for one in rows for part in one.parts)
    note = f"Changes are against the largest run known to each row. {_sentences(laws)}" if laws else ""
    return Table(columns, cells, reasons, note)


def _panel(study: StudyAnalysis, series: str, activity: str | None) -> Panel:
    assert study.projection is not None
    points = [one for one in study.projection.points if one.series == series]
    backtests = [one for one in study.projection.backtests if one.series == series]
    measured = [
        {"count": point.world_size, "value": point.efficiency, "group": "measured", "label": percent(point.efficiency)}
        for point in points_of(study, series)
    ]
    bands: list[dict[str, Any]] = []
    shown = [(one, "projected") for one in points] + [(one, "projected, then measured") for one in backtests]
    for one, group in shown:
        if one.efficiency is None or one.step_ms is None:
            continue
        bands.append(
            {"count": one.world_size, "value": one.efficiency.value, "low": one.efficiency.low,
             "high": one.efficiency.high, "group": group, "from": _counts(one.from_world_sizes),
             "step": one.step_ms.value, "label": percent(one.efficiency.value) if group == "projected" else ""}
        )  # fmt: skip
    charts = drawing() if bands else None
    return Panel(
        f"projection-{series}",
        series,
        projection_sentence(points, backtests, activity),
        projection_table([one for one in (*points, *backtests) if one.step_ms is not None]),
        [charts.projection(measured, bands, "CPU ranks" if activity == "cpu" else "GPUs")] if charts else [],
        [Key("measured", category(0)), Key("projected", category(1)),
         Key("projected from fewer ranks, as a test", category(2))] if bands else [],
        "" if bands else "nothing can be projected from this study",
subject=series,
)  # fmt: skip


def _between(interval: Interval, show: Any) -> str:
    return f"{show(interval.value)} ({show(interval.low)} to {show(interval.high)})"


def _projections(count: int) -> str:
    return f"{count} projection{'' if count == 1 else 's'}"


def _counts(counts: Sequence[int]) -> str:
    return ", ".join(str(count) for count in counts)


def _off(off: float) -> str:
    return f"{figure(abs(100 * off), 1)}% too {'long' if off > 0 else 'short'}"


def _sentences(texts: Iterable[str]) -> str:
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in texts)
