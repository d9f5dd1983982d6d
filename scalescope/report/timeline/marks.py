"""What is pointed out in a drawn step: what the late rank alone does, and where another rank waits longest for it."""

from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.report.drawing.numbers import rank_list
from scalescope.report.text.late.rank import LateRank
from scalescope.report.timeline.layout import Lane, Layout
from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.step_timeline import Calls, StepTimeline


@dataclass(frozen=True)
class Mark:
    """A frame around a stretch of a lane, with a few words above its rank. Times in ns on everybody's clock."""

    start: int
    end: int
    top: int  # px
    height: int  # px
    above: int  # px, where the words stand
    text: str


def marks_of(timeline: StepTimeline, layout: Layout, late: LateRank | None) -> list[Mark]:
    """Return the marks of a step that its late rank is drawn in; none where nobody is late."""
    by_rank = _lanes_of(layout)
    if late is None or not any(one.rank in late.ranks for one in timeline.ranks) or len(by_rank) != len(timeline.ranks):
        return []
    marks = []
    for rank, lanes in zip(timeline.ranks, by_rank, strict=True):
        mark = _alone(timeline, lanes, late) if rank.rank in late.ranks else _waiting(lanes, late)
        marks += [mark] if mark is not None else []
    return marks


def _lanes_of(layout: Layout) -> list[list[Lane]]:
    """Return the lanes by rank: a rank's first lane names it."""
    found: list[list[Lane]] = []
    for lane in layout.lanes:
        if lane.rank:
            found.append([])
        found[-1].append(lane)
    return found


def _alone(timeline: StepTimeline, lanes: Sequence[Lane], late: LateRank) -> Mark | None:
    """Return the longest of what the rank alone does: a kernel by its name, else idle time of the step."""
    named = {at for at, name in enumerate(timeline.names) if name in late.activities}
    kind, wanted = ("kernels", named) if named else ("parts", {PARTS.index(late.part)})
    if not named and late.part == "compute":
        return None  # a little everywhere
    lane = next((one for one in lanes if one.kind == kind), None)
    return _longest(lane, wanted, _above(lanes), f"{rank_list(late.ranks)} alone") if lane is not None else None


def _longest(lane: Lane, wanted: set[int], above: int, text: str) -> Mark | None:
    spans = lane.spans
    rows = [row for row, what in enumerate(spans.what) if what in wanted]
    if not rows:
        return None
    row = max(rows, key=lambda one: spans.length[one])
    start = lane.begin + spans.start[row]
    return Mark(start, start + spans.length[row], lane.top, lane.height, above, text)


def _waiting(lanes: Sequence[Lane], late: LateRank) -> Mark | None:
    lane = next((one for one in lanes if one.kind == "collectives"), None)
    if lane is None or not isinstance(lane.spans, Calls) or max(lane.spans.wait, default=0) <= 0:
        return None
    row = max(range(len(lane.spans)), key=lambda one: lane.spans.wait[one])  # type: ignore[attr-defined] # Calls
    start = lane.begin + lane.spans.start[row]
    return Mark(
        start, start + lane.spans.wait[row], lane.top, lane.height, _above(lanes), f"waits for {rank_list(late.ranks)}"
    )


def _above(lanes: Sequence[Lane]) -> int:
    return lanes[0].top - 5
