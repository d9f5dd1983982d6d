"""What a device's streams say of its times: each runs one thing after another, in the order of their launches.

A trace of which a few activities stand elsewhere has a few broken times, and is told without them; where many do, its
times are no device's, or its correlations lead to others' launches.
"""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from scalescope.scaling.rank.launches import find_launches
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import Activities, Trace

Mask = npt.NDArray[np.bool_]

#: By so much ends may be told in another order than they had.
_CLOCK_TICKS_NS = 1_000
#: A time that is wrong by less makes no difference to a step.
MISPLACED_NS = 1_000_000
#: A few are so many, or this share: more, and nothing says that the others are right.
_FEW, _FEW_OF = 3, 0.01


class LeftOut(NamedTuple):
    """Activities whose times cannot be, and which are counted as lost."""

    activities: int = 0
    share: float = 0.0  # of what ran, by their number or by their durations, whichever is more


def disordered(trace: Trace, launch: Ints) -> int:
    """Return how many activities begin, on their stream, after one that was launched later."""
    activities = trace.activities
    known = np.flatnonzero((launch >= 0) & (activities.correlation > 0))
    known = known[np.lexsort((activities.start[known], activities.stream[known], activities.device[known]))]
    same = (np.diff(activities.stream[known]) == 0) & (np.diff(activities.device[known]) == 0)
    return int((same & (np.diff(launch[known]) < 0)).sum())


def overlapped(trace: Trace) -> int:
    """Return how many activities lie, on their stream, within one that began before them, which no stream runs so.

    A kernel may begin before the one before it ends (programmatic launches), and ends behind it.
    """
    if not _runs_in_order(trace):
        return 0
    activities = trace.activities
    known = _launched_alone(activities, activities.end > activities.start)
    within = 0
    for rows in _streams(activities, known, activities.start):
        reach = np.maximum.accumulate(activities.end[rows])[:-1]
        within += int((activities.end[rows[1:]] < reach - _CLOCK_TICKS_NS).sum())
    return within


def over_the_next(trace: Trace) -> float:
    """Return which share of what activities take lies over the ones behind them on their streams.

    Programmatic launches begin before the one before them ends. No stream runs much of its work so, but where many of
    them are short; else durations are not those of the device.
    """
    if not _runs_in_order(trace):
        return 0.0
    activities = trace.activities
    known = _launched_alone(activities, activities.end > activities.start)
    over = 0
    for rows in _streams(activities, known, activities.start):
        reach = np.maximum.accumulate(activities.end[rows])[:-1]
        shared = np.minimum(reach, activities.end[rows[1:]]) - activities.start[rows[1:]]
        over += int(np.maximum(shared, 0).sum())
    return over / max(1, int((activities.end - activities.start)[known].sum()))


def out_of_order(trace: Trace) -> Mask:
    """Tell which activities begin before one of their stream whose launch was over before theirs, or after one that
    was launched behind them: the fewest of which that can be said. Only what lies far from where it can be counts.
    """
    activities = trace.activities
    found = np.zeros(len(activities), bool)
    if not _runs_in_order(trace):
        return found
    launches = find_launches(trace)
    known = _launched_alone(activities, launches.start >= 0)
    for rows in _streams(activities, known, launches.start):
        start = activities.start[rows]
        if (np.diff(start) < 0).any():
            found[rows] = _misplaced(start, launches.start[rows], launches.returned[rows])
    return found


def without(trace: Trace, broken: Mask) -> tuple[Trace, LeftOut]:
    """Return a trace without the activities whose times cannot be, and how many those are; where they are more than a
    few, the trace as it stands.
    """
    count, activities = int(broken.sum()), trace.activities
    if not count or count > max(_FEW, _FEW_OF * len(activities)):
        return trace, LeftOut()
    kept = ~broken
    took = activities.end - activities.start
    share = max(count / broken.size, float(took[broken].sum()) / max(1.0, float(took.sum())))
    left = Activities(*(getattr(activities, name)[kept] for name in Activities.__struct_fields__))
    return replace(trace, activities=left), LeftOut(count, share)


def _misplaced(start: Ints, launch: Ints, returned: Ints) -> Mask:
    """Tell which of a stream's activities, in the order of their launches, are not where the others are."""
    kept = _ascending(start)
    rows = np.flatnonzero(kept)
    # calls of two threads that overlap may enqueue in either order: only what was surely before, or behind, tells
    reach = np.maximum.accumulate(returned[rows])
    before = np.searchsorted(reach, launch) - 1
    behind = np.searchsorted(launch[rows], returned, side="right")
    early = (before >= 0) & (start < start[rows[np.maximum(before, 0)]] - MISPLACED_NS)
    late = (behind < rows.size) & (start > start[rows[np.minimum(behind, rows.size - 1)]] + MISPLACED_NS)
    found: Mask = ~kept & (early | late)
    return found


def _ascending(values: Ints) -> Mask:
    """Tell which values make one of the longest ascending sequences of them."""
    least: list[int] = []  # the least last value of the sequences of each length
    last: list[int] = []  # and where it stands
    before = np.full(values.size, -1, np.int64)
    for at, value in enumerate(values.tolist()):
        length = bisect_right(least, value)
        if length:
            before[at] = last[length - 1]
        if length == len(least):
            least.append(value)
            last.append(at)
        else:
            least[length], last[length] = value, at
    kept = np.zeros(values.size, bool)
    at = last[-1] if last else -1
    while at >= 0:
        kept[at] = True
        at = int(before[at])
    return kept


def _runs_in_order(trace: Trace) -> bool:
    """Tell whether what a trace calls a stream is one: AMD's queues hold several."""
    return trace.framework == "torch" and not any(name.startswith("hip") for name in trace.names)


def _launched_alone(activities: Activities, chosen: Mask) -> Ints:
    """Return those of the rows that one launch each launched: of a graph's kernels any may be told as of one stream."""
    known = np.flatnonzero((activities.correlation > 0) & chosen)
    _, of_launch, launched = np.unique(activities.correlation[known], return_inverse=True, return_counts=True)
    alone: Ints = known[launched[of_launch] == 1]
    return alone


def _streams(activities: Activities, rows: Ints, by: Ints) -> list[Ints]:
    """Return the rows of each stream of each device, ascending by a column, and by their start where that is equal."""
    rows = rows[np.lexsort((activities.start[rows], by[rows], activities.stream[rows], activities.device[rows]))]
    other = (np.diff(activities.stream[rows]) != 0) | (np.diff(activities.device[rows]) != 0)
    return [part for part in np.split(rows, np.flatnonzero(other) + 1) if part.size]
