"""The step for the page's script: every lane as one list of small integers, which compress what a page can hold."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from scalescope.report.drawing import parts
from scalescope.report.timeline.layout import (
    COPY,
    LEFT,
    TOP,
    TRANSFER,
    UNSPLIT,
    WAIT,
    Lane,
    Layout,
    kernel_shade,
)
from scalescope.report.timeline.marks import Mark
from scalescope.scaling.step_timeline import Calls, StepTimeline

#: A step is told in so many units at least, each of a whole number of ns: far finer than any screen.
_UNITS = 4_000_000


def payload(timeline: StepTimeline, layout: Layout, marks: Sequence[Mark] = ()) -> dict[str, Any]:
    """Return what the script draws. Times are in units of `unit` ns; a lane's `spans` are gap, length, what, …

    The gap is from the begin of the span before: lanes may overlap themselves. A mark is start, end, top, height,
    where its words stand, and these.
    """
    unit = max(1, layout.length // _UNITS)
    return {
        "unit": unit,
        "length": layout.length // unit + 1,
        "left": LEFT,
        "top": TOP,
        "height": layout.height,
        "names": timeline.names,
        "kinds": timeline.kinds,
        "parts": [part.name for part in parts.ALL],
        "colours": {
            "parts": [part.variable for part in parts.ALL],
            "names": [_variable(kernel_shade(kind)) for kind in timeline.kinds],
            "wait": _variable(WAIT),
            "transfer": _variable(TRANSFER),
            "unsplit": _variable(UNSPLIT),
            "copies": _variable(COPY),
            "phases": "--line",
        },
        "lanes": [_lane(lane, unit) for lane in layout.lanes],
        "marks": [[one.start // unit, one.end // unit, one.top, one.height, one.above, one.text] for one in marks],
    }


def _lane(lane: Lane, unit: int) -> dict[str, Any]:
    spans = lane.spans
    starts = [(at + lane.begin) // unit for at in spans.start]
    gaps = [one - before for one, before in zip(starts, [0, *starts], strict=False)]
    lengths = [max(1, one // unit) for one in spans.length]
    found: dict[str, Any] = {
        "kind": lane.kind,
        "label": lane.label,
        "rank": lane.rank,
        "top": lane.top,
        "height": lane.height,
        "spans": list(chain.from_iterable(zip(gaps, lengths, spans.what, strict=True))),
    }
    if any(one > 1 for one in spans.count):
        found["count"] = spans.count
    if isinstance(spans, Calls):
        found["wait"] = [one if one < 0 else one // unit for one in spans.wait]
        found["bytes"] = spans.bytes
    return found


def _variable(colour: str) -> str:
    return colour.removeprefix("var(").removesuffix(")")
