"""Merges what is too narrow to be seen: of many spans in one pixel, one is left."""

import numpy as np

from scalescope.scaling.step_timeline import Calls, LaneSpans, RankTimeline, StepTimeline

#: All lanes of all ranks hold no more spans: about 15 bytes each in the page.
MOST_SPANS = 24_000
#: The coarseness begins at this share of the step: what is merged then is never seen apart.
_FINEST = 1 / 65_536


def bounded(timeline: StepTimeline, most: int = MOST_SPANS) -> StepTimeline:
    """Return a timeline of at most so many spans, as fine as that allows. The exact `parts_ns` stay as they are."""
    lanes = [lane for rank in timeline.ranks for lane in lanes_of(rank)]
    if sum(map(len, lanes)) <= most:
        return timeline
    longest = max((rank.length for rank in timeline.ranks), default=1)
    pixel = max(1, round(longest * _FINEST))
    # a lane keeps two spans a pixel at most, but for those that overlap
    while sum(_kept(lane, pixel) for lane in lanes) > most and pixel < longest:
        pixel *= 2
    timeline.merged_below_ns = pixel
    for rank in timeline.ranks:
        rank.parts = merged(rank.parts, pixel)
        rank.kernels = merged(rank.kernels, pixel)
        rank.copies = merged(rank.copies, pixel)
        rank.phases = merged(rank.phases, pixel)
        rank.collectives = merged_calls(rank.collectives, pixel)
    return timeline


def lanes_of(rank: RankTimeline) -> tuple[LaneSpans, ...]:
    """Return a rank's lanes, as they are drawn from the top."""
    return rank.parts, rank.kernels, rank.collectives, rank.copies, rank.phases


def merged(lane: LaneSpans, pixel: int) -> LaneSpans:
    """Return a lane in which those that are narrower than a pixel, ns, and begin in the same one, are one span.

    It reaches from the first one's begin to the last one's end, and is what most of its time is.
    """
    start, length, what = _columns(lane)
    first = _firsts(start, length, pixel)
    if first.size == start.size:
        return lane
    groups = np.cumsum(np.isin(np.arange(start.size), first)) - 1
    end = np.maximum.reduceat(start + length, first)
    count = np.add.reduceat(np.array(lane.count or np.ones(start.size), np.int64), first)
    return LaneSpans(
        start=start[first].tolist(),
        length=(end - start[first]).tolist(),
        what=_mostly(groups, what, length, first.size),
        count=count.tolist(),
    )


def merged_calls(lane: Calls, pixel: int) -> Calls:
    """Return collectives, merged as `merged` does; what several wait adds up, and their bytes do."""
    whole = merged(lane, pixel)
    if whole is lane:
        return lane
    start, length, _ = _columns(lane)
    first = _firsts(start, length, pixel)
    wait, size = np.array(lane.wait, np.int64), np.array(lane.bytes, np.int64)
    waits = np.add.reduceat(np.maximum(wait, 0), first)
    unknown = np.minimum.reduceat(wait, first) < 0
    sizes = np.where(np.minimum.reduceat(size, first) < 0, -1, np.add.reduceat(size, first))
    return Calls(
        start=whole.start, length=whole.length, what=whole.what, count=whole.count,
        wait=np.where(unknown, -1, np.minimum(waits, whole.length)).tolist(), bytes=sizes.tolist(),
    )  # fmt: skip


def _columns(lane: LaneSpans) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.array(lane.start, np.int64), np.array(lane.length, np.int64), np.array(lane.what, np.int64)


def _kept(lane: LaneSpans, pixel: int) -> int:
    start, length, _ = _columns(lane)
    return int(_firsts(start, length, pixel).size)


def _firsts(start: np.ndarray, length: np.ndarray, pixel: int) -> np.ndarray:
    """Return the rows that begin a span of the merged lane."""
    if start.size == 0:
        return np.empty(0, np.int64)
    narrow, at = length < pixel, start // pixel
    joins = np.zeros(start.size, bool)
    joins[1:] = narrow[1:] & narrow[:-1] & (at[1:] == at[:-1])
    return np.flatnonzero(~joins)


def _mostly(groups: np.ndarray, what: np.ndarray, length: np.ndarray, count: int) -> list[int]:
    """Return by group what takes most of its time."""
    pairs, of_row = np.unique(np.stack((groups, what)), axis=1, return_inverse=True)
    time = np.bincount(of_row.ravel(), weights=length, minlength=pairs.shape[1])
    order = np.lexsort((time, pairs[0]))  # the last of each group takes most
    found = np.zeros(count, np.int64)
    found[pairs[0][order]] = pairs[1][order]
    return [int(one) for one in found]
