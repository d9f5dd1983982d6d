"""What every chart is made of: axes, tooltips, colours, and the frame that closes a Vega-Lite specification."""

from collections.abc import Sequence
from typing import Any

import altair as alt
from altair.utils.schemapi import debug_mode

Spec = dict[str, Any]
Rows = list[dict[str, Any]]

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
_HEIGHT = 260
INK, MUTED, SURFACE = "var(--ink)", "var(--muted)", "var(--surface)"
#: Byte counts on an axis, in binary units.
_SIZE_LABEL = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '~r') + ' GiB' : "
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~r') + ' MiB' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '~r') + ' KiB' : format(datum.value, '~r') + ' B'"
)
#: Names on an axis: kernels of one library begin alike and end differently, so long ones are cut in the middle.
NAME_LABEL = "length(datum.label) > 36 ? slice(datum.label, 0, 16) + '…' + slice(datum.label, -19) : datum.label"
#: Above what makes a chart: tests hold all of them to the schema, which takes longer than the rest of the page.
unchecked = debug_mode(False)
ZOOM = "wheel![event.shiftKey]"  # the plain wheel scrolls the page


def chart_of(rows: Rows) -> alt.Chart:
    """Hold rows with as many digits as an eye or a tooltip can use: a page of many ranks has many of them."""
    short = [{key: _short(value) for key, value in row.items()} for row in rows]
    return alt.Chart(alt.Data(values=short))


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def tip(field: str, title: str, form: str | None = None) -> alt.Tooltip:
    if form is None:
        return alt.Tooltip(f"{field}:N", title=title)
    return alt.Tooltip(f"{field}:Q", title=title, format=form)


def count_axis(counts: Sequence[int], noun: str) -> alt.X:
    return alt.X(
        "count:Q",
        title=noun,
        axis=alt.Axis(values=list(counts), format="d", labelOverlap=True),
        scale=alt.Scale(domain=[0, 1.18 * counts[-1]], nice=False),
    )


def figure_axis(field: str, title: str, *, nice: bool) -> alt.Y:
    return alt.Y(
        f"{field}:Q", title=title, scale=alt.Scale(zero=True, nice=nice), axis=alt.Axis(format="~s", tickCount=5)
    )


def size_axis(counts: Sequence[int]) -> alt.X:
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


def finish(*layers: Any, height: float = _HEIGHT) -> Spec:
    """Return layers drawn over one another, `height` pixels high, in the page's own style."""
    config = alt.Config(
        font=_FONT,
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        axis=alt.AxisConfig(
            labelColor=MUTED,
            titleColor=MUTED,
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
        legend=alt.LegendConfig(labelColor=INK, labelFontSize=12, symbolType="square"),
        view=alt.ViewConfig(stroke=None),
    )
    # all at once: each further call copies the layers and their rows anew
    chart = alt.layer(*layers, width="container", height=height, background="transparent", config=config)
    spec: Spec = chart.to_dict(validate=False)
    spec.pop("$schema", None)  # an address; nothing is fetched from it, and the page needs none
    return spec
