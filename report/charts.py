"""The charts, as Vega-Lite specifications. Colours are the palette's variables; a chart holds its own data."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from report.numbers import milliseconds, percent

Spec = dict[str, Any]
Rows = list[dict[str, Any]]

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
_HEIGHT = 260
_INK, _MUTED, _SURFACE = "var(--ink)", "var(--muted)", "var(--surface)"
#: Byte counts on an axis, in binary units.
_SIZE_LABEL = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '~r') + ' GiB' : "
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~r') + ' MiB' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '~r') + ' KiB' : format(datum.value, '~r') + ' B'"
)
#: Names on an axis: kernels of one library begin alike and end differently, so long ones are cut in the middle.
_NAME_LABEL = "length(datum.label) > 36 ? slice(datum.label, 0, 16) + '…' + slice(datum.label, -19) : datum.label"
_ZOOM = "wheel![event.shiftKey]"  # the plain wheel scrolls the page


def throughput(points: Rows, unit: str, counts: Sequence[int], noun: str) -> Spec:
    """Throughput against rank count, with the line of perfect scaling. Rows: count, value, label."""
    first = points[0]
    ideal = [{"count": count, "value": first["value"] / first["count"] * count} for count in (0, counts[-1])]
    line = _chart(points).encode(x=_counts(counts, noun), y=_figure("value", unit, nice=True))
    perfect = _chart(ideal).mark_line(strokeDash=[5, 4], color="var(--ideal)").encode(x="count:Q", y="value:Q")
    return _finish(
        perfect,
        line.mark_line(color="var(--c1)", strokeWidth=2.5),
        line.mark_point(color="var(--c1)", filled=True, size=70, opacity=1).encode(
            tooltip=[_tip("count", noun, ","), _tip("value", unit, ",.1f"), _tip("ideal", "perfect", ",.1f")]
        ),
        line.mark_text(align="left", dx=8, dy=12, color=_INK, fontSize=12).encode(text="label:N"),
    )


def efficiency(points: Rows, counts: Sequence[int], noun: str) -> Spec:
    """Efficiency against rank count; all is the dashed line. Rows: count, value (a share), label."""
    line = _chart(points).encode(
        x=_counts(counts, noun),
        y=alt.Y(
            "value:Q",
            title="efficiency",
            axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1]),
            scale=alt.Scale(domain=[0, max(1.12, 1.08 * max(point["value"] for point in points))]),
        ),
    )
    return _finish(
        _chart([{"value": 1}]).mark_rule(strokeDash=[5, 4], color="var(--ideal)").encode(y="value:Q"),
        line.mark_line(color="var(--c1)", strokeWidth=2.5),
        line.mark_point(color="var(--c1)", filled=True, size=70, opacity=1).encode(
            tooltip=[_tip("count", noun, ","), _tip("value", "efficiency", ".1%")]
        ),
        line.mark_text(dy=14, baseline="top", color=_INK, fontSize=12).encode(text="label:N"),
    )


def waterfall(steps: Sequence[tuple[str, str, float]], grown: float) -> Spec:
    """The growth of a step, a bar a part, each starting where the one before ended. Steps: name, colour, ms."""
    rows: Rows = []
    start = 0.0
    for name, colour, ms in steps:
        rows.append(_bar(name, start, start + ms, ms, grown, colour))
        start += ms
    rows.append(_bar("growth in all", 0.0, grown, grown, grown, _MUTED))
    order = [row["part"] for row in rows]
    bars = _chart(rows).encode(y=alt.Y("part:N", sort=order, title=None, axis=alt.Axis(labelLimit=180)))
    reach = max([abs(row["end"]) for row in rows] + [abs(row["start"]) for row in rows] + [1e-6])
    lowest = min(row["end"] for row in rows)
    x = alt.X(
        "start:Q",
        title="ms added to the step",
        axis=alt.Axis(tickCount=8),
        scale=alt.Scale(domain=[min(0, lowest * 1.25), reach * 1.22], nice=False),
    )
    return _finish(
        bars.mark_bar(height={"band": 0.72}, cornerRadius=2).encode(
            x=x,
            x2="end:Q",
            color=alt.Color("colour:N", scale=None),
            tooltip=[_tip("part", "part"), _tip("label", "added")],
        ),
        bars.mark_text(align="left", dx=6, color=_INK, fontSize=12).encode(x=alt.X("right:Q"), text="label:N"),
        height=max(90, 27 * len(rows)),
    )


def partition(
    rows: Rows,
    labels: Sequence[str],
    parts: Sequence[tuple[str, str]],
    title: str,
    legend: bool = False,
    whose: str = "rank",
) -> Spec:
    """A rank (or something else) a bar, stacked from the parts of its time. Rows: label, part, order, ms, share."""
    bars = _chart(rows).encode(
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
            _tip("label", whose),
            _tip("part", "part"),
            _tip("ms", title, ",.3f"),
            _tip("share", "of the whole", ".1%"),
        ],
    )
    height = max(60, min(26, max(5, 620 / max(len(labels), 1))) * len(labels))
    return _finish(bars.mark_bar(height={"band": 0.8}), height=height)


def heat_map(rows: Rows, title: str, full: float) -> Spec:
    """Rank × step; the stronger the colour, the longer the wait, up to `full` ms. Rows: rank, step, ms, length."""
    ranks = len({row["rank"] for row in rows})
    cells = _chart(rows).encode(
        x=alt.X("step:O", title="profiled step", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        y=alt.Y("rank:O", title=None, axis=alt.Axis(labelOverlap=True, labelExpr="'rank ' + datum.label")),
        opacity=alt.Opacity("ms:Q", scale=alt.Scale(domain=[0, full], range=[0.03, 1], clamp=True), legend=None),
        tooltip=[
            _tip("rank", "rank"),
            _tip("step", "step"),
            _tip("ms", title, ",.3f"),
            _tip("length", "step, ms", ",.2f"),
        ],
    )
    layers = [cells.mark_rect(color="var(--heat)", stroke=_SURFACE, strokeWidth=1)]
    if len(rows) <= 120:
        layers.append(
            _chart(rows)
            .encode(x="step:O", y="rank:O", text=alt.Text("ms:Q", format=",.2f"))
            .mark_text(color=_INK, fontSize=11)
        )
    return _finish(*layers, height=max(60, min(30, max(4, 480 / max(ranks, 1))) * ranks))


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
        _tip("group", "of"),
        _tip("size", "size"),
        _tip("bus", "busbw, GB/s", ",.1f"),
        _tip("time", "time, µs", ",.1f"),
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
        base = _chart([row]).encode(y=alt.Y("value:Q"))
        layers.append(base.mark_rule(strokeDash=[5, 4], color="var(--ideal)"))
        layers.append(base.mark_text(align="left", x=4, dy=-7, color=_MUTED, fontSize=11).encode(text="label:N"))
    lines = _chart(rows).encode(x=_sizes(everything), y=y, color=colour)
    if rows:
        layers.append(lines.mark_line(strokeWidth=2, clip=True))
        layers.append(lines.mark_point(filled=True, size=26, opacity=1, clip=True).encode(tooltip=tips))
    if points:
        calls = _chart(points).encode(x=_sizes(everything), y=y, color=colour)
        layers.append(
            calls.mark_point(shape="diamond", filled=True, size=150, opacity=1, clip=True).encode(
                tooltip=[*tips, _tip("calls", "calls", ","), _tip("in_situ", "of the sweep's speed")]
            )
        )
    layers[-1] = layers[-1].add_params(alt.selection_interval(bind="scales", zoom=_ZOOM))
    return _finish(*layers, height=300)


def call_time(rows: Rows, groups: Sequence[tuple[str, str]], legend: bool = False) -> Spec:
    """Time a call against size, both log: what a small collective costs. Rows: bytes, time, group, size."""
    lines = _chart(rows).encode(
        x=_sizes([row["bytes"] for row in rows]),
        y=alt.Y(
            "time:Q", title="time a call, µs", scale=alt.Scale(type="log"), axis=alt.Axis(format=",~r", tickCount=5)
        ),
        color=alt.Color(
            "group:N",
            scale=alt.Scale(domain=[name for name, _ in groups], range=[value for _, value in groups]),
            legend=alt.Legend(title=None, orient="bottom") if legend else None,
        ),
    )
    return _finish(
        lines.mark_line(strokeWidth=2),
        lines.mark_point(filled=True, size=26, opacity=1).encode(
            tooltip=[_tip("group", "of"), _tip("size", "size"), _tip("time", "time, µs", ",.1f")]
        ),
        height=300,
    )


def profiling_overhead(rows: Rows) -> Spec:
    """The measured step beside the step in the profiler's window. Rows: run, measured, window, label."""
    order = [row["run"] for row in rows]
    base = _chart(rows).encode(y=alt.Y("run:N", sort=order, title=None, axis=alt.Axis(labelLimit=220)))
    values = [row[key] for row in rows for key in ("measured", "window")]
    span = alt.Scale(domain=[0, 1.32 * max(values)], nice=False)
    return _finish(
        base.mark_rule(color="var(--ideal)", strokeWidth=3).encode(
            x=alt.X("measured:Q", title="ms a step", scale=span, axis=alt.Axis(tickCount=8)), x2="window:Q"
        ),
        base.mark_point(filled=True, size=85, color="var(--c1)", opacity=1).encode(
            x="measured:Q", tooltip=[_tip("run", "run"), _tip("measured", "measured step, ms", ",.2f")]
        ),
        base.mark_point(size=85, color="var(--c2)", strokeWidth=2, opacity=1).encode(
            x="window:Q", tooltip=[_tip("run", "run"), _tip("window", "step in the window, ms", ",.2f")]
        ),
        base.mark_text(align="left", dx=12, color=_INK, fontSize=12).encode(x="right:Q", text="label:N"),
        height=max(60, 34 * len(rows)),
    )


def kernels(rows: Rows, title: str) -> Spec:
    """A kernel a bar, and a tick where the same kernel stands in the smallest run. Rows: kernel, kind, colour, ms,
    label, calls, share, before (ms there, or None)."""
    order = [row["kernel"] for row in rows]
    y = alt.Y("kernel:N", sort=order, title=None, axis=alt.Axis(labelLimit=270, labelExpr=_NAME_LABEL))
    bars = _chart(rows).encode(y=y)
    reach = max([row["ms"] for row in rows] + [row["before"] or 0.0 for row in rows])
    x = alt.X("ms:Q", title=title, axis=alt.Axis(tickCount=6), scale=alt.Scale(domain=[0, 1.2 * reach], nice=False))
    tips = [
        _tip("kernel", "name"),
        _tip("kind", "kind"),
        _tip("ms", "ms a step", ",.3f"),
        _tip("calls", "calls a step", ",.1f"),
        _tip("share", "of the compute"),
        _tip("there", "in the smallest run"),
    ]
    ticks = _chart([row for row in rows if row["before"] is not None])
    return _finish(
        bars.mark_bar(height={"band": 0.72}, cornerRadius=2).encode(
            x=x, color=alt.Color("colour:N", scale=None), tooltip=tips
        ),
        ticks.mark_tick(color=_INK, thickness=2, height={"band": 0.9}).encode(x="before:Q", y=y, tooltip=tips),
        bars.mark_text(align="left", dx=6, color=_INK, fontSize=12).encode(x=alt.X("right:Q"), text="label:N"),
        height=max(90, 24 * len(rows)),
    )


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
        _tip("group", "what"),
        _tip("from", f"from {noun}"),
        _tip("count", noun, ","),
        _tip("value", "efficiency", ".1%"),
        _tip("low", "at least", ".1%"),
        _tip("high", "at most", ".1%"),
        _tip("step", "step, ms", ",.2f"),
    ]
    y = alt.Y("value:Q", title="efficiency", axis=alt.Axis(format="%", tickCount=5), scale=span)
    known = _chart(measured).encode(x=x, y=y, color=colour)
    said = _chart(bands).encode(x=x, color=colour)
    return _finish(
        known.mark_line(strokeWidth=2.2),
        said.mark_rule(strokeWidth=7, opacity=0.3).encode(y=alt.Y("low:Q", scale=span), y2="high:Q", tooltip=tips),
        said.mark_point(filled=True, size=55, opacity=1).encode(y=y, tooltip=tips),
        said.mark_text(align="left", dx=9, color=_INK, fontSize=12).encode(y=y, text="label:N"),
        known.mark_point(filled=True, size=70, opacity=1).encode(
            tooltip=[_tip("count", noun, ","), _tip("value", "efficiency", ".1%")]
        ),
    )


def kinds(rows: Rows, labels: Sequence[str], order: Sequence[str]) -> Spec:
    """A kind of kernel a group of bars, one a run, the palest the smallest. Rows: label (the run), part, ms, share."""
    count = len(labels)
    bars = _chart(rows).encode(
        y=alt.Y("part:N", sort=list(order), title=None, axis=alt.Axis(labelLimit=200)),
        yOffset=alt.YOffset("label:N", sort=list(labels)),
        x=alt.X("ms:Q", title="ms a step, mean rank", axis=alt.Axis(tickCount=8), scale=alt.Scale(nice=False)),
        opacity=alt.Opacity(
            "label:O",
            scale=alt.Scale(domain=list(labels), range=[0.35 + 0.65 * (at + 1) / count for at in range(count)]),
            legend=None,
        ),
        tooltip=[
            _tip("part", "kind"),
            _tip("label", "on"),
            _tip("ms", "ms a step", ",.3f"),
            _tip("share", "of the compute", ".1%"),
        ],
    )
    return _finish(bars.mark_bar(color="var(--part-compute)"), height=max(90, (8 * count + 8) * len(order)))


def over_steps(rows: Rows, groups: Sequence[tuple[str, str]], title: str, legend: bool = False) -> Spec:
    """A figure against the step, a line a group. Rows: step, value, group, phase."""
    line = _chart(rows).encode(
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
    tips = [_tip("group", "of"), _tip("step", "step"), _tip("value", title, ",.3f"), _tip("phase", "phase")]
    return _finish(
        line.mark_line(strokeWidth=1.6, clip=True),
        line.mark_point(filled=True, size=18, opacity=0.9, clip=True)
        .encode(tooltip=tips)
        .add_params(alt.selection_interval(bind="scales", zoom=_ZOOM)),
    )


def fitted_times(rows: Rows, ceilings: Rows, groups: Sequence[tuple[str, str]], legend: bool = False) -> Spec:
    """Time against size, both log: points as measured, the fit as a line in its interval, the links alone dashed.

    Rows: bytes, size, group, time, fit, low, high, ceiling; `ceilings` are those of them with a ceiling to draw.
    """
    colour = alt.Color(
        "group:N",
        scale=alt.Scale(domain=[name for name, _ in groups], range=[value for _, value in groups]),
        legend=alt.Legend(title=None, orient="bottom") if legend else None,
    )
    x = _sizes([row["bytes"] for row in rows])
    span = alt.Scale(type="log", nice=False)
    y = alt.Y("time:Q", title="time a call, µs", scale=span, axis=alt.Axis(format=",~r", tickCount=5))
    base = _chart(rows).encode(x=x, color=colour)
    layers = [
        base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", scale=span), y2="high:Q"),
        base.mark_line(strokeWidth=1.8).encode(y=alt.Y("fit:Q", scale=span)),
        base.mark_point(filled=True, size=30, opacity=1).encode(
            y=y,
            tooltip=[
                _tip("group", "of"),
                _tip("size", "size"),
                _tip("time", "measured, µs", ",.1f"),
                _tip("fit", "fitted, µs", ",.1f"),
                _tip("low", "from, µs", ",.1f"),
                _tip("high", "to, µs", ",.1f"),
            ],
        ),
    ]
    if ceilings:
        dashed = _chart(ceilings).encode(x=x, y=alt.Y("ceiling:Q", scale=span), detail="group:N")
        layers.insert(0, dashed.mark_line(strokeDash=[5, 4], color="var(--ideal)", strokeWidth=1.4))
    return _finish(*layers, height=300)


def prediction_errors(rows: Rows, close: float) -> Spec:
    """How far predictions are off, with their intervals, against size. Rows: bytes, size, off, low, high (shares)."""
    base = _chart(rows).encode(x=_sizes([row["bytes"] for row in rows]))
    reach = max([abs(row["off"]) for row in rows] + [1.6 * close])
    span = alt.Scale(domain=[-1.1 * reach, 1.1 * reach], clamp=True, nice=False)
    tips = [
        _tip("size", "size"),
        _tip("off", "off", "+.1%"),
        _tip("low", "from", "+.1%"),
        _tip("high", "to", "+.1%"),
        _tip("measured", "measured, µs", ",.1f"),
        _tip("predicted", "predicted, µs", ",.1f"),
    ]
    y = alt.Y("off:Q", title="predicted over measured", scale=span, axis=alt.Axis(format="+%", tickCount=6))
    marks = _chart([{"at": -close}, {"at": 0.0}, {"at": close}])
    return _finish(
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


def _chart(rows: Rows) -> alt.Chart:
    """Hold rows with as many digits as an eye or a tooltip can use: a page of many ranks has many of them."""
    short = [{key: _short(value) for key, value in row.items()} for row in rows]
    return alt.Chart(alt.Data(values=short))  # type: ignore[no-untyped-call]


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _tip(field: str, title: str, form: str | None = None) -> alt.Tooltip:
    if form is None:
        return alt.Tooltip(f"{field}:N", title=title)
    return alt.Tooltip(f"{field}:Q", title=title, format=form)


def _counts(counts: Sequence[int], noun: str) -> alt.X:
    return alt.X(
        "count:Q",
        title=noun,
        axis=alt.Axis(values=list(counts), format="d", labelOverlap=True),
        scale=alt.Scale(domain=[0, 1.18 * counts[-1]], nice=False),
    )


def _figure(field: str, title: str, *, nice: bool) -> alt.Y:
    return alt.Y(
        f"{field}:Q", title=title, scale=alt.Scale(zero=True, nice=nice), axis=alt.Axis(format="~s", tickCount=5)
    )


def _sizes(counts: Sequence[int]) -> alt.X:
    """A log axis of byte counts, labelled at every third power of two or fewer."""
    low, high = max(min(counts, default=1), 1), max([*counts, 2])
    exponents = range(low.bit_length() - 1, high.bit_length())
    stride = max(1, -(-len(exponents) // 9))
    return alt.X(
        "bytes:Q",
        title="size",
        scale=alt.Scale(type="log", base=2, nice=False, padding=12),
        axis=alt.Axis(values=[2**exponent for exponent in exponents[::stride]], labelExpr=_SIZE_LABEL),
    )


def _finish(*layers: Any, height: float = _HEIGHT) -> Spec:
    chart = alt.layer(*layers).properties(width="container", height=height, background="transparent")
    chart = chart.configure(
        font=_FONT,
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        axis=alt.AxisConfig(
            labelColor=_MUTED,
            titleColor=_MUTED,
            titleFontWeight="normal",
            titleFontSize=12,
            labelFontSize=12,
            gridColor="var(--grid)",
            domain=False,
            ticks=False,
            labelPadding=8,
            titlePadding=10,
        ),
        axisY=alt.AxisConfig(titleAnchor="end"),
        legend=alt.LegendConfig(labelColor=_INK, labelFontSize=12, symbolType="square"),
        view=alt.ViewConfig(stroke=None),
    )
    spec: Spec = chart.to_dict()
    spec.pop("$schema", None)  # an address; nothing is fetched from it, and the page needs none
    return spec
