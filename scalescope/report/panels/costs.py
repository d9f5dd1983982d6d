"""The cost model: its curve through the sweep's points under the ceiling of the links, and its own test."""

from typing import Any

from scalescope.records.console import counted
from scalescope.report.drawing.numbers import figure, listing, microseconds, percent, size
from scalescope.report.drawing.palette import category
from scalescope.report.drawing.panel import Key, Panel, drawing
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.scaling.costs.answer import CostAnswer, OperationCost
from scalescope.scaling.costs.holdout import CLOSE, Holdout


def cost_panels(answer: CostAnswer | None, legends: bool = False) -> list[Panel]:
    """Return two panels an operation: the fit over its points, and the largest group predicted from the smaller."""
    panels = []
    for operation in answer.operations if answer is not None else []:
        panels.append(_fit_panel(operation, legends))
        if operation.holdout is not None:
            panels.append(holdout_panel(operation.holdout))
    return panels


def fit_sentence(operation: OperationCost) -> str:
    """Return what the fit is worth, and what it says of the links, in words."""
    groups = listing([str(n) for n in operation.group_sizes])
    where = " across hosts" if operation.across_hosts else ""
    sizes = [point.bytes for point in operation.points]
    segments = len(operation.forms[0].segments)
    text = (
        f"{operation.operation} {operation.dtype} on {groups} ranks{where}, {size(min(sizes))} to {size(max(sizes))}: "
        f"{counted(len(operation.points), 'point')}, {counted(segments, 'segment')}"
    )
    if operation.typical_error is not None:
        text += f"; half of the points from 1 MiB up lie within {percent(operation.typical_error)} of the fit"
    if operation.holdout is None:
        text += f". Not checked: {operation.holdout_reason}"
    return f"{text}."


def holdout_sentence(held: Holdout) -> str:
    """Return how the prediction of the largest group from the smaller ones came out, in words."""
    known = listing([str(n) for n in held.from_group_sizes])
    judged = held.judged
    if not judged or held.worst is None:
        return f"{held.group_size} ranks were predicted from {known}; no point is as large as 1 MiB, to be judged."
    worst = held.worst
    return (
        f"{held.group_size} ranks predicted from {known} alone: {held.close} of {len(judged)} sizes from 1 MiB up come "
        f"within {percent(CLOSE, 0)} of what was measured, and {held.inside} lie inside their interval. The worst is "
        f"{size(worst.bytes)}: {microseconds(worst.predicted_us.value)} predicted, {microseconds(worst.measured_us)} "
        f"measured ({figure(100 * worst.off, 1)}%)."
    )


def fit_table(operation: OperationCost) -> Table:
    """One row a point: measured, fitted with its interval, and what the links alone would take."""
    columns = [
        Column("group_size", "ranks", digits=0),
        Column("bytes", "size", "B", 0),
        Column("measured_us", "measured", "µs", 1),
        Column("fitted_us", "fitted", "µs", 1),
        Column("low_us", "from", "µs", 1),
        Column("high_us", "to", "µs", 1),
        Column("off", "off", "%", 1, 100),
        Column("ceiling_us", "links alone", "µs", 1),
    ]
    rows: list[list[Cell]] = [
        [point.group_size, point.bytes, point.measured_us, point.fitted_us.value, point.fitted_us.low,
         point.fitted_us.high, point.fitted_us.value / point.measured_us - 1, point.ceiling_us]
        for point in operation.points
    ]  # fmt: skip
    return Table(columns, rows, {"ceiling_us": "no rate of the links is known for this device"}, _terms_note(operation))


def holdout_table(held: Holdout) -> Table:
    """One row a size of the largest group: measured, predicted without it, and how far off."""
    columns = [
        Column("bytes", "size", "B", 0),
        Column("measured_us", "measured", "µs", 1),
        Column("measured_half_us", "±", "µs", 1),
        Column("predicted_us", "predicted", "µs", 1),
        Column("low_us", "from", "µs", 1),
        Column("high_us", "to", "µs", 1),
        Column("off", "off", "%", 1, 100),
        Column("inside", "inside"),
    ]
    rows: list[list[Cell]] = [
        [point.bytes, point.measured_us, point.measured_half_us, point.predicted_us.value, point.predicted_us.low,
         point.predicted_us.high, point.off, "yes" if point.inside else "no"]
        for point in held.points
    ]  # fmt: skip
    return Table(columns, rows)


def holdout_panel(held: Holdout) -> Panel:
    """Return the check as a panel: how far each size's prediction is off, with its interval."""
    rows = [
        {"bytes": point.bytes, "size": size(point.bytes), "off": point.off,
         "low": point.predicted_us.low / point.measured_us - 1, "high": point.predicted_us.high / point.measured_us - 1,
         "measured": point.measured_us, "predicted": point.predicted_us.value}
        for point in held.judged
    ]  # fmt: skip
    charts = drawing() if rows else None
    known = listing([str(n) for n in held.from_group_sizes])
    return Panel(
        f"holdout-{held.operation}-{held.dtype}",
        f"{held.operation} {held.dtype}: {held.group_size} ranks predicted from {known}",
        holdout_sentence(held),
        holdout_table(held),
        [charts.prediction_errors(rows, CLOSE)] if charts else [],
        [Key("predicted over measured, with its interval", category(0)), Key("10% off", "var(--ideal)")],
        "" if rows else "no size of 1 MiB or more was measured",
    )


def _fit_panel(operation: OperationCost, legends: bool) -> Panel:
    groups = [(f"{n} ranks", category(at)) for at, n in enumerate(operation.group_sizes)]
    rows: list[dict[str, Any]] = [
        {"bytes": point.bytes, "size": size(point.bytes), "group": f"{point.group_size} ranks",
         "time": point.measured_us, "fit": point.fitted_us.value, "low": max(point.fitted_us.low, 0.1),
         "high": point.fitted_us.high, "ceiling": point.ceiling_us}
        for point in operation.points
    ]  # fmt: skip
    # where it can be seen: a link's own time for a few bytes is no time at all
    ceilings = [row for row in rows if row["ceiling"] and row["ceiling"] >= 1]
    charts = drawing()
    legend = [Key(name, colour) for name, colour in groups]
    if ceilings:
        legend.append(Key(f"the links alone: {operation.ceiling_assumes}", "var(--ideal)"))
    return Panel(
        f"fit-{operation.operation}-{operation.dtype}{'-across-hosts' if operation.across_hosts else ''}",
        f"{operation.operation} {operation.dtype}: what it costs{' across hosts' if operation.across_hosts else ''}",
        f"{fit_sentence(operation)} Points are measured, lines are the fit with its interval.",
        fit_table(operation),
        [charts.fitted_times(rows, ceilings, groups, legend=legends)] if charts else [],
        legend,
    )


def _terms_note(operation: OperationCost) -> str:
    """Return the likeliest form's terms, segment by segment."""
    form = operation.forms[0]
    texts = []
    for segment in form.segments:
        terms = [
            f"{term.name} {figure(term.us, 2)} µs" if term.us is not None
            else f"{term.name} {figure(term.ns_per_kib or 0.0, 3)} ns/KiB"
            for term in segment.terms
        ]  # fmt: skip
        texts.append(f"{size(segment.from_bytes)} to {size(segment.to_bytes)}: {', '.join(terms)}")
    others = f" {len(operation.forms) - 1} other forms share in the prediction." if len(operation.forms) > 1 else ""
    likeliest = f"Of the formulas that fit, the likeliest (probability {percent(form.weight, 0)})"
    return f"{likeliest}: {'; '.join(texts)}.{others}"
