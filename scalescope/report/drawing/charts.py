"""The charts, as Vega-Lite specifications. Colours are the palette's variables; a chart holds its own data."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from scalescope.report.drawing.chart_parts import (
    INK,
    MUTED,
    NAME_LABEL,
    SURFACE,
    ZOOM,
    Rows,
    Spec,
    chart_of,
    count_axis,
    figure_axis,
    finish,
    size_axis,
    tip,
    unchecked,
)
from scalescope.report.drawing.numbers import milliseconds, percent

_LABEL_PX = 122  # what `+221.9 ms · 100%` takes beside its bar


@unchecked
def throughput(points: Rows, unit: str, counts: Sequence[int], noun: str) -> Spec:
    """Throughput against rank count, with the line of perfect scaling. Rows: count, value, label."""
    first = points[0]
    ideal = [{"count": count, "value": first["value"] / first["count"] * count} for count in (0, counts[-1])]
    line = chart_of(points).encode(x=count_axis(counts, noun), y=figure_axis("value", unit, nice=True))
    perfect = chart_of(ideal).mark_line(strokeDash=[5, 4], color="var(--ideal)").encode(x="count:Q", y="value:Q")
    return finish(
        perfect,
        line.mark_line(color="var(--c1)", strokeWidth=2.5),
        line.mark_point(color="var(--c1)", filled=True, size=70, opacity=1).encode(
            tooltip=[tip("count", noun, ","), tip("value", unit, ",.1f"), tip("ideal", "perfect", ",.1f")]
        ),
        line.mark_text(align="left", dx=8, dy=12, color=INK, fontSize=12).encode(text="label:N"),
    )


@unchecked
def efficiency(points: Rows, counts: Sequence[int], noun: str) -> Spec:
    """Efficiency against rank count; all is the dashed line. Rows: count, value (a share), label."""
    line = chart_of(points).encode(
        x=count_axis(counts, noun),
        y=alt.Y(
            "value:Q",
            title="efficiency",
            axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1]),
            scale=alt.Scale(domain=[0, max(1.12, 1.08 * max(point["value"] for point in points))]),
        ),
    )
    return finish(
        chart_of([{"value": 1}]).mark_rule(strokeDash=[5, 4], color="var(--ideal)").encode(y="value:Q"),
        line.mark_line(color="var(--c1)", strokeWidth=2.5),
        line.mark_point(color="var(--c1)", filled=True, size=70, opacity=1).encode(
            tooltip=[tip("count", noun, ","), tip("value", "efficiency", ".1%")]
        ),
        line.mark_text(dy=14, baseline="top", color=INK, fontSize=12).encode(text="label:N"),
    )


@unchecked
def waterfall(steps: Sequence[tuple[str, str, float]], grown: float) -> Spec:
    """The growth of a step, a bar a part, each starting where the one before ended. Steps: name, colour, ms."""
    rows: Rows = []
    start = 0.0
    for name, colour, ms in steps:
        rows.append(_bar(name, start, start + ms, ms, grown, colour))
        start += ms
    rows.append(_bar("growth in all", 0.0, grown, grown, grown, MUTED))
    order = [row["part"] for row in rows]
    bars = chart_of(rows).encode(y=alt.Y("part:N", sort=order, title=None, axis=alt.Axis(labelLimit=180)))
    reach = max([row["right"] for row in rows] + [1e-6])
    lowest = min(0.0, 1.05 * min(row["end"] for row in rows))
    # the labels right of the bars take as many pixels on a narrow page as on a wide one
    room = f"({reach!r} * width - {lowest!r} * {_LABEL_PX}) / max(width - {_LABEL_PX}, 30)"
    x = alt.X(
        "start:Q",
        title="ms added to the step",
        axis=alt.Axis(tickCount=8),
        scale=alt.Scale(domainMin=lowest, domainMax=alt.ExprRef(room), nice=False),
    )
    return finish(
        bars.mark_bar(height={"band": 0.72}, cornerRadius=2).encode(
            x=x,
            x2="end:Q",
            color=alt.Color("colour:N", scale=None),
            tooltip=[tip("part", "part"), tip("label", "added")],
        ),
        bars.mark_text(align="left", dx=6, color=INK, fontSize=12).encode(x=alt.X("right:Q"), text="label:N"),
        height=max(90, 27 * len(rows)),
    )


@unchecked
def partition(
    rows: Rows,
    labels: Sequence[str],
    parts: Sequence[tuple[str, str]],
    title: str,
    legend: bool = False,
    whose: str = "rank",
) -> Spec:
    """A rank (or something else) a bar, stacked from the parts of its time. Rows: label, part, order, ms, share."""
    bars = chart_of(rows).encode(
        y=alt.Y("label:N", sort=list(labels), title=None, axis=alt.Axis(labelLimit=200, labelOverlap=True)),
        x=alt.X(
            "ms:Q",
            title=title,
            stack="zero",
            axis=alt.Axis(tickCount=8, labelOverlap=True, labelSeparation=6),
            scale=alt.Scale(nice=False),
        ),
        color=alt.Color(
            "part:N",
            scale=alt.Scale(domain=[name for name, _ in parts], range=[colour for _, colour in parts]),
            legend=alt.Legend(title=None, orient="bottom", columns=4) if legend else None,
        ),
        order=alt.Order("order:Q"),
        tooltip=[
            tip("label", whose),
            tip("part", "part"),
            tip("ms", title, ",.3f"),
            tip("share", "of the whole", ".1%"),
        ],
    )
    height = max(60, min(26, max(5, 620 / max(len(labels), 1))) * len(labels))
    return finish(bars.mark_bar(height={"band": 0.8}), height=height)


@unchecked
def heat_map(rows: Rows, title: str, full: float) -> Spec:
    """Rank × step; the stronger the colour, the longer the wait, up to `full` ms. Rows: rank, step, ms, length."""
    ranks = len({row["rank"] for row in rows})
    cells = chart_of(rows).encode(
        x=alt.X("step:O", title="profiled step", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        y=alt.Y("rank:O", title=None, axis=alt.Axis(labelOverlap=True, labelExpr="'rank ' + datum.label")),
        opacity=alt.Opacity("ms:Q", scale=alt.Scale(domain=[0, full], range=[0.03, 1], clamp=True), legend=None),
        tooltip=[
            tip("rank", "rank"),
            tip("step", "step"),
            tip("ms", title, ",.3f"),
            tip("length", "step, ms", ",.2f"),
        ],
    )
    layers = [cells.mark_rect(color="var(--heat)", stroke=SURFACE, strokeWidth=1)]
    if len(rows) <= 120:
        layers.append(
            chart_of(rows)
            .encode(x="step:O", y="rank:O", text=alt.Text("ms:Q", format=",.2f"))
            .mark_text(color=INK, fontSize=11)
        )
    return finish(*layers, height=max(60, min(30, max(4, 480 / max(ranks, 1))) * ranks))


@unchecked
def bus_bandwidth(
    rows: Rows,
    groups: Sequence[tuple[str, str]],
    ceilings: Rows,
    points: Rows | None = None,
    legend: bool = False,
) -> Spec:
    """busbw against size (log), a line a group, with the ceiling of the links. Rows: bytes, bus, group, time.

    `points` are collectives in training, drawn over the lines. Ceilings: value, label.
    """
    everything = [row["bytes"] for row in [*rows, *(points or [])]]
    colour = alt.Color(
        "group:N",
        scale=alt.Scale(domain=[name for name, _ in groups], range=[value for _, value in groups]),
        legend=alt.Legend(title=None, orient="bottom") if legend else None,
    )
    tips = [
        tip("group", "of"),
        tip("size", "size"),
        tip("bus", "busbw, GB/s", ",.1f"),
        tip("time", "time, µs", ",.1f"),
    ]
    tops = [row["bus"] for row in [*rows, *(points or [])]] + [row["value"] for row in ceilings]
    y = alt.Y(
        "bus:Q",
        title="busbw, GB/s",
        axis=alt.Axis(tickCount=6),
        scale=alt.Scale(domain=[0, 1.12 * max(tops, default=1)], nice=False),
    )
    layers: list[Any] = []
    for row in ceilings:
        base = chart_of([row]).encode(y=alt.Y("value:Q"))
        layers.append(base.mark_rule(strokeDash=[5, 4], color="var(--ideal)"))
        layers.append(base.mark_text(align="left", x=4, dy=-7, color=MUTED, fontSize=11).encode(text="label:N"))
    lines = chart_of(rows).encode(x=size_axis(everything), y=y, color=colour)
    if rows:
        layers.append(lines.mark_line(strokeWidth=2, clip=True))
        layers.append(lines.mark_point(filled=True, size=26, opacity=1, clip=True).encode(tooltip=tips))
    if points:
        calls = chart_of(points).encode(x=size_axis(everything), y=y, color=colour)
        layers.append(
            calls.mark_point(shape="diamond", filled=True, size=150, opacity=1, clip=True).encode(
                tooltip=[*tips, tip("calls", "calls", ","), tip("in_situ", "of the sweep's speed")]
            )
        )
    layers[-1] = layers[-1].add_params(alt.selection_interval(bind="scales", zoom=ZOOM))
    return finish(*layers, height=300)


@unchecked
def call_time(rows: Rows, groups: Sequence[tuple[str, str]], legend: bool = False) -> Spec:
    """Time a call against size, both log: what a small collective costs. Rows: bytes, time, group, size."""
    lines = chart_of(rows).encode(
        x=size_axis([row["bytes"] for row in rows]),
        y=alt.Y(
            "time:Q", title="time a call, µs", scale=alt.Scale(type="log"), axis=alt.Axis(format=",~r", tickCount=5)
        ),
        color=alt.Color(
            "group:N",
            scale=alt.Scale(domain=[name for name, _ in groups], range=[value for _, value in groups]),
            legend=alt.Legend(title=None, orient="bottom") if legend else None,
        ),
    )
    return finish(
        lines.mark_line(strokeWidth=2),
        lines.mark_point(filled=True, size=26, opacity=1).encode(
            tooltip=[tip("group", "of"), tip("size", "size"), tip("time", "time, µs", ",.1f")]
        ),
        height=300,
    )


@unchecked
def profiling_overhead(rows: Rows) -> Spec:
    """The measured step beside the step in the profiler's window. Rows: run, measured, window, label."""
    order = [row["run"] for row in rows]
    base = chart_of(rows).encode(y=alt.Y("run:N", sort=order, title=None, axis=alt.Axis(labelLimit=220)))
    values = [row[key] for row in rows for key in ("measured", "window")]
    span = alt.Scale(domain=[0, 1.32 * max(values)], nice=False)
    return finish(
        base.mark_rule(color="var(--ideal)", strokeWidth=3).encode(
            x=alt.X("measured:Q", title="ms a step", scale=span, axis=alt.Axis(tickCount=8)), x2="window:Q"
        ),
        base.mark_point(filled=True, size=85, color="var(--c1)", opacity=1).encode(
            x="measured:Q", tooltip=[tip("run", "run"), tip("measured", "measured step, ms", ",.2f")]
        ),
        base.mark_point(size=85, color="var(--c2)", strokeWidth=2, opacity=1).encode(
            x="window:Q", tooltip=[tip("run", "run"), tip("window", "step in the window, ms", ",.2f")]
        ),
        base.mark_text(align="left", dx=12, color=INK, fontSize=12).encode(x="right:Q", text="label:N"),
        height=max(60, 34 * len(rows)),
    )


@unchecked
def kernels(rows: Rows, title: str) -> Spec:
    """A kernel a bar, and a tick where the same kernel stands in the smallest run. Rows: kernel, kind, colour, ms,
    label, calls, share, before (ms there, or None)."""
    order = [row["kernel"] for row in rows]
    y = alt.Y("kernel:N", sort=order, title=None, axis=alt.Axis(labelLimit=270, labelExpr=NAME_LABEL))
    bars = chart_of(rows).encode(y=y)
    reach = max([row["ms"] for row in rows] + [row["before"] or 0.0 for row in rows])
    x = alt.X("ms:Q", title=title, axis=alt.Axis(tickCount=6), scale=alt.Scale(domain=[0, 1.2 * reach], nice=False))
    tips = [
        tip("kernel", "name"),
        tip("kind", "kind"),
        tip("ms", "ms a step", ",.3f"),
        tip("calls", "calls a step", ",.1f"),
        tip("share", "of the compute"),
        tip("there", "in the smallest run"),
    ]
    ticks = chart_of([row for row in rows if row["before"] is not None])
    return finish(
        bars.mark_bar(height={"band": 0.72}, cornerRadius=2).encode(
            x=x, color=alt.Color("colour:N", scale=None), tooltip=tips
        ),
        ticks.mark_tick(color=INK, thickness=2, height={"band": 0.9}).encode(x="before:Q", y=y, tooltip=tips),
        bars.mark_text(align="left", dx=6, color=INK, fontSize=12).encode(x=alt.X("right:Q"), text="label:N"),
        height=max(90, 24 * len(rows)),
    )


@unchecked
def projection(measured: Rows, bands: Rows, noun: str) -> Spec:
    """Efficiency against rank count (log): measured, projected with intervals, and projections that were tested.

    Rows: count, value, group, label; bands also low, high, from, step.
    """
    everything = [*measured, *bands]
    counts = sorted({row["count"] for row in everything})
    lowest = min([row["value"] for row in everything] + [row["low"] for row in bands])
    highest = max([1.0] + [row["value"] for row in everything] + [row["high"] for row in bands])
    span = alt.Scale(domain=[max(0.0, lowest - 0.03), highest + 0.01], nice=False)
    groups = ["measured", "projected", "projected, then measured"]
    x = alt.X(
        "count:Q",
        title=noun,
        axis=alt.Axis(values=counts, format="d", labelOverlap=True),
        scale=alt.Scale(type="log", base=2, nice=False, padding=24),
    )
    shades = ["var(--c1)", "var(--c2)", "var(--c3)"]
    colour = alt.Color("group:N", scale=alt.Scale(domain=groups, range=shades), legend=None)
    tips = [
        tip("group", "what"),
        tip("from", f"from {noun}"),
        tip("count", noun, ","),
        tip("value", "efficiency", ".1%"),
        tip("low", "at least", ".1%"),
        tip("high", "at most", ".1%"),
        tip("step", "step, ms", ",.2f"),
    ]
    y = alt.Y("value:Q", title="efficiency", axis=alt.Axis(format="%", tickCount=5), scale=span)
    known = chart_of(measured).encode(x=x, y=y, color=colour)
    said = chart_of(bands).encode(x=x, color=colour)
    return finish(
        known.mark_line(strokeWidth=2.2),
        said.mark_rule(strokeWidth=7, opacity=0.3).encode(y=alt.Y("low:Q", scale=span), y2="high:Q", tooltip=tips),
        said.mark_point(filled=True, size=55, opacity=1).encode(y=y, tooltip=tips),
        said.mark_text(align="left", dx=9, color=INK, fontSize=12).encode(y=y, text="label:N"),
        known.mark_point(filled=True, size=70, opacity=1).encode(
            tooltip=[tip("count", noun, ","), tip("value", "efficiency", ".1%")]
        ),
    )


@unchecked
def kinds(rows: Rows, labels: Sequence[str], order: Sequence[str]) -> Spec:
    """A kind of kernel a group of bars, one a run, the palest the smallest. Rows: label (the run), part, ms, share."""
    count = len(labels)
    bars = chart_of(rows).encode(
        y=alt.Y("part:N", sort=list(order), title=None, axis=alt.Axis(labelLimit=200)),
        yOffset=alt.YOffset("label:N", sort=list(labels)),
        x=alt.X("ms:Q", title="ms a step, mean rank", axis=alt.Axis(tickCount=8), scale=alt.Scale(nice=False)),
        opacity=alt.Opacity(
            "label:O",
            scale=alt.Scale(domain=list(labels), range=[0.35 + 0.65 * (at + 1) / count for at in range(count)]),
            legend=None,
        ),
        tooltip=[
            tip("part", "kind"),
            tip("label", "on"),
            tip("ms", "ms a step", ",.3f"),
            tip("share", "of the compute", ".1%"),
        ],
    )
    return finish(bars.mark_bar(color="var(--part-compute)"), height=max(90, (8 * count + 8) * len(order)))


@unchecked
def over_steps(rows: Rows, groups: Sequence[tuple[str, str]], title: str, legend: bool) -> Spec:
    """A figure against the step, a line a group. Rows: step, value, group, phase."""
    line = chart_of(rows).encode(
        x=alt.X(
            "step:Q", title="step", axis=alt.Axis(format="~r", tickMinStep=1, tickCount=8), scale=alt.Scale(nice=False)
        ),
        y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(tickCount=6)),
        color=alt.Color(
            "group:N",
            scale=alt.Scale(domain=[name for name, _ in groups], range=[value for _, value in groups]),
            legend=alt.Legend(title=None, orient="bottom") if legend else None,
        ),
    )
    tips = [tip("group", "of"), tip("step", "step"), tip("value", title, ",.3f"), tip("phase", "phase")]
    return finish(
        line.mark_line(strokeWidth=1.6, clip=True),
        line.mark_point(filled=True, size=18, opacity=0.9, clip=True)
        .encode(tooltip=tips)
        .add_params(alt.selection_interval(bind="scales", zoom=ZOOM)),
    )


@unchecked
def fitted_times(rows: Rows, ceilings: Rows, groups: Sequence[tuple[str, str]], legend: bool) -> Spec:
    """Time against size, both log: points as measured, the fit as a line in its interval, the links alone dashed.

    Rows: bytes, size, group, time, fit, low, high, ceiling; `ceilings` are those of them with a ceiling to draw.
    """
    colour = alt.Color(
        "group:N",
        scale=alt.Scale(domain=[name for name, _ in groups], range=[value for _, value in groups]),
        legend=alt.Legend(title=None, orient="bottom") if legend else None,
    )
    x = size_axis([row["bytes"] for row in rows])
    span = alt.Scale(type="log", nice=False)
    y = alt.Y("time:Q", title="time a call, µs", scale=span, axis=alt.Axis(format=",~r", tickCount=5))
    base = chart_of(rows).encode(x=x, color=colour)
    layers = [
        base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", scale=span), y2="high:Q"),
        base.mark_line(strokeWidth=1.8).encode(y=alt.Y("fit:Q", scale=span)),
        base.mark_point(filled=True, size=30, opacity=1).encode(
            y=y,
            tooltip=[
                tip("group", "of"),
                tip("size", "size"),
                tip("time", "measured, µs", ",.1f"),
                tip("fit", "fitted, µs", ",.1f"),
                tip("low", "from, µs", ",.1f"),
                tip("high", "to, µs", ",.1f"),
            ],
        ),
    ]
    if ceilings:
        dashed = chart_of(ceilings).encode(x=x, y=alt.Y("ceiling:Q", scale=span), detail="group:N")
        layers.insert(0, dashed.mark_line(strokeDash=[5, 4], color="var(--ideal)", strokeWidth=1.4))
    return finish(*layers, height=300)


@unchecked
def prediction_errors(rows: Rows, close: float) -> Spec:
    """How far predictions are off, with their intervals, against size. Rows: bytes, size, off, low, high (shares)."""
    base = chart_of(rows).encode(x=size_axis([row["bytes"] for row in rows]))
    reach = max([abs(row["off"]) for row in rows] + [1.6 * close])
    span = alt.Scale(domain=[-1.1 * reach, 1.1 * reach], clamp=True, nice=False)
    tips = [
        tip("size", "size"),
        tip("off", "off", "+.1%"),
        tip("low", "from", "+.1%"),
        tip("high", "to", "+.1%"),
        tip("measured", "measured, µs", ",.1f"),
        tip("predicted", "predicted, µs", ",.1f"),
    ]
    y = alt.Y("off:Q", title="predicted over measured", scale=span, axis=alt.Axis(format="+%", tickCount=6))
    marks = chart_of([{"at": -close}, {"at": 0.0}, {"at": close}])
    return finish(
        marks.mark_rule(strokeDash=[5, 4], color="var(--ideal)").encode(y=alt.Y("at:Q", scale=span)),
        base.mark_rule(color="var(--c1)", strokeWidth=6, opacity=0.25).encode(
            y=alt.Y("low:Q", scale=span), y2="high:Q"
        ),
        base.mark_point(filled=True, size=60, color="var(--c1)", opacity=1).encode(y=y, tooltip=tips),
        height=200,
    )


def _bar(name: str, start: float, end: float, ms: float, grown: float, colour: str) -> dict[str, Any]:
    share = f" · {percent(ms / grown, 0)}".replace("-", "−") if grown > 0 else ""
    sign = "+" if ms >= 0 else "−"
    label = f"{sign}{milliseconds(abs(ms))}{share}"
    return {"part": name, "start": start, "end": end, "right": max(start, end), "label": label, "colour": colour}
