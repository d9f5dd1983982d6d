"""How a study scales: throughput and efficiency against the rank count, and where the step's growth went."""

from collections.abc import Sequence

from scalescope.report.drawing.numbers import percent, rate
from scalescope.report.drawing.palette import category
from scalescope.report.drawing.panel import Key, Panel, drawing
from scalescope.report.drawing.tables import Table
from scalescope.report.report_data import ReportData
from scalescope.report.sentences import loss_sentence
from scalescope.report.text.scaling.efficiency import efficiency_text
from scalescope.report.text.scaling.factors import cores_sentence, factors_sentence
from scalescope.report.views import (
    activities,
    devices,
    efficiency_table,
    in_tokens,
    points_of,
    series_names,
    waterfall_steps,
    waterfall_table,
)
from scalescope.scaling.study_answer import ScalingPoint

_WORTH_A_BAR_MS = 0.005  # a part that reads 0.00 in the table has no bar


def scaling_panels(data: ReportData) -> list[Panel]:
    """Return a panel a series: throughput with the line of perfect scaling, and efficiency."""
    study = data.study
    if study is None:
        return []
    panels = []
    kinds = activities(data.answers)
    table = efficiency_table(study)
    for series in series_names(study):
        points = points_of(study, series)
        if not points:
            continue
        noun = "CPU ranks" if kinds.get(points[-1].run) == "cpu" else "GPUs"
        unit = _unit(points)
        counts = [point.world_size for point in points]
        values = [_done(point, unit) for point in points]
        perfect = values[0] / counts[0] * counts[-1]
        rows = [
            {"count": count, "value": value, "label": rate(value), "ideal": values[0] / counts[0] * count}
            for count, value in zip(counts, values, strict=True)
        ]
        shares = [{"count": point.world_size, "value": point.efficiency, "label": percent(point.efficiency)}
                  for point in points]  # fmt: skip
        last = points[-1]
        of_series = [run for point in points for run in data.answers if run.name == point.run]
        where = devices(last.world_size, kinds.get(last.run))
        sentence = (
            f"{where} do {rate(values[-1])} {unit}; perfect {last.scaling} scaling (dashed) would be {rate(perfect)}. "
            f"Efficiency is {efficiency_text(last, of_series)}."
            if len(points) > 1
            else f"{where} do {rate(values[-1])} {unit}; one count alone says nothing of scaling."
        )
        charts = drawing()
        of_factors = filter(None, (sentence, factors_sentence(points), cores_sentence(points, of_series)))
        panels.append(
            Panel(
                f"scaling-{series}",
                series,
                " ".join(of_factors),
                Table(table.columns, [row for row in table.rows if row[0] == series], table.reasons),
                [charts.throughput(rows, unit, counts, noun), charts.efficiency(shares, counts, noun)]
                if charts
                else [],
                [Key("measured", category(0)), Key("perfect scaling", "var(--ideal)")],
                subject=series,
            )
        )
    return panels


def growth_panels(data: ReportData) -> list[Panel]:
    """Return a panel a pair of rank counts: the parts of the step's growth, each starting where the last one ended."""
    study = data.study
    if study is None:
        return []
    kinds = activities(data.answers)
    panels = []
    for fall in study.waterfall:
        points = points_of(study, fall.series)
        runs = [point.run for point in points]
        ends = [point for point in points if point.world_size in (fall.from_world_size, fall.to_world_size)]
        activity = kinds.get(runs[-1]) if runs else None
        start, end = devices(fall.from_world_size, activity), devices(fall.to_world_size, activity)
        steps = [
            (part.name, f"var({part.variable})", ms) for part, ms in waterfall_steps(fall) if abs(ms) >= _WORTH_A_BAR_MS
        ]
        charts = drawing()
        panels.append(
            Panel(
                f"growth-{fall.series}-{fall.to_world_size}",
                f"{fall.series}: {start} → {end}",
                f"{loss_sentence(fall)} {cores_sentence(ends, data.answers)}".rstrip(),
                waterfall_table(fall),
                [charts.waterfall(steps, fall.growth_ms)] if charts else [],
                subject=fall.series,
            )
        )
    return panels


def _unit(points: Sequence[ScalingPoint]) -> str:
    """Return what a series' work is counted in; plain traces tell only how it grows."""
    if in_tokens(points):
        return "tokens/s"
    return "samples/s" if all(point.samples_per_s is not None for point in points) else "× the smallest run's work"


def _done(point: ScalingPoint, unit: str) -> float:
    told = point.tokens_per_s if unit == "tokens/s" else point.samples_per_s if unit == "samples/s" else point.speedup
    assert told is not None  # by the choice of the unit
    return told
