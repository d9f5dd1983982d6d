"""The step as a picture: what a reader without JavaScript sees, and what is printed."""

from collections.abc import Sequence

from markupsafe import escape

from scalescope.report.drawing.numbers import milliseconds
from scalescope.report.timeline.layout import LEFT, TOP, UNSPLIT, WAIT, WIDTH, Lane, Layout, colours_of
from scalescope.report.timeline.marks import Mark
from scalescope.scaling.step_timeline import Calls, LaneSpans, StepTimeline
from scalescope.scaling.timelines.merge import merged, merged_calls

_TICKS = 8
_CHARACTER_PX = 5.6  # of the small text in a phase


def picture(timeline: StepTimeline, layout: Layout, pointed_out: Sequence[Mark] = ()) -> str:
    """Return the SVG: a path a colour and lane, with what is narrower than a pixel merged."""
    plot = WIDTH - LEFT
    pixel = max(1, layout.length // plot)
    marks = [f'<svg viewBox="0 0 {WIDTH} {layout.height}" aria-hidden="true">']
    for tick in range(_TICKS + 1):
        x = LEFT + plot * tick / _TICKS
        label = milliseconds(layout.length * tick / _TICKS / 1e6)
        anchor = "start" if tick == 0 else "end" if tick == _TICKS else "middle"
        marks.append(f'<path d="M{x:.1f} {TOP - 6}V{layout.height}" stroke="var(--grid)"/>')
        marks.append(f'<text x="{x:.1f}" y="11" text-anchor="{anchor}" class="axis">{label}</text>')
    for lane in layout.lanes:
        marks += _lane(lane, timeline, plot / layout.length, pixel)
    for one in pointed_out:
        x, width = LEFT + one.start * plot / layout.length, (one.end - one.start) * plot / layout.length
        marks.append(f'<rect x="{x:.1f}" y="{one.top - 1}" width="{max(width, 2):.1f}" height="{one.height + 2}" '
                     f'fill="none" stroke="var(--ink)" stroke-width="2"/>')  # fmt: skip
        marks.append(f'<text x="{x:.1f}" y="{one.above}" class="mark">{escape(one.text)}</text>')
    return "".join([*marks, "</svg>"])


def _lane(lane: Lane, timeline: StepTimeline, scale: float, pixel: int) -> list[str]:
    middle = lane.top + lane.height / 2
    marks = []
    if lane.rank:
        marks.append(f'<text x="0" y="{middle + 4:.0f}" class="rank">{escape(lane.rank)}</text>')
    marks.append(
        f'<text x="{LEFT - 8}" y="{middle + 4:.0f}" text-anchor="end" class="lane">{escape(lane.label)}</text>'
    )
    spans = merged_calls(lane.spans, pixel) if isinstance(lane.spans, Calls) else merged(lane.spans, pixel)
    seen = Lane(lane.kind, lane.label, lane.rank, lane.top, lane.height, lane.begin, spans)
    lines: dict[str, list[str]] = {}
    for at, colour in enumerate(colours_of(seen, timeline)):
        start, length = spans.start[at] + lane.begin, spans.length[at]
        if isinstance(spans, Calls):
            wait = spans.wait[at]
            if wait > 0:
                lines.setdefault(WAIT, []).append(_line(start, wait, middle, scale))
                start, length = start + wait, length - wait
            colour = UNSPLIT if wait < 0 else colour
        lines.setdefault(colour, []).append(_line(start, length, middle, scale))
    marks += [f'<path d="{"".join(one)}" stroke="{colour}" stroke-width="{lane.height}"/>'
              for colour, one in lines.items()]  # fmt: skip
    return marks + (_names(lane, spans, timeline, scale) if lane.kind == "phases" else [])


def _line(start: int, length: int, middle: float, scale: float) -> str:
    return f"M{LEFT + start * scale:.1f} {middle:g}h{max(length * scale, 0.2):.1f}"


def _names(lane: Lane, spans: LaneSpans, timeline: StepTimeline, scale: float) -> list[str]:
    """Return the phases' names where they have the room."""
    marks = []
    for start, length, what in zip(spans.start, spans.length, spans.what, strict=True):
        room = int(length * scale / _CHARACTER_PX)
        if room >= 4:
            x, name = LEFT + (start + lane.begin) * scale + 3, timeline.names[what]
            text = name if len(name) <= room else f"{name[: room - 1]}…"
            marks.append(f'<text x="{x:.1f}" y="{lane.top + lane.height - 3}" class="phase">{escape(text)}</text>')
    return marks
