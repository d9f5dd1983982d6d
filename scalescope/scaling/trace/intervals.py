"""Sets of time intervals, exact in integer nanoseconds: union, intersection, difference, and the priority sweep.

A set is a pair of int64 arrays, starts and ends, half-open `[start, end)`. A *disjoint* set is sorted, and its
intervals neither overlap nor touch, which is what `union` returns and what the other operations take.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Intervals(NamedTuple):
    """A set of half-open intervals `[starts[i], ends[i])`, in ns."""

    starts: Ints
    ends: Ints


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def intervals(pairs: Sequence[tuple[int, int]]) -> Intervals:
    """Return the set of the given (start, end) pairs, as they stand (not merged)."""
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return Intervals(table[:, 0], table[:, 1])


def union(*sets: Intervals) -> Intervals:
    """Return the disjoint set of all instants that any interval of any set covers."""
    starts = np.concatenate([part.starts for part in sets]) if sets else EMPTY.starts
    ends = np.concatenate([part.ends for part in sets]) if sets else EMPTY.ends
    real = ends > starts
    if not real.all():
        starts, ends = starts[real], ends[real]
    if starts.size == 0:
        return EMPTY
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    # a new interval begins where the next start lies beyond everything that came before
    breaks = np.flatnonzero(starts[1:] > reach[:-1])
    first = np.concatenate(([0], breaks + 1))
    last = np.concatenate((breaks, [starts.size - 1]))
    return Intervals(starts[first], reach[last])


def length(disjoint: Intervals) -> int:
    """Return the time a disjoint set covers, in ns."""
    return int((disjoint.ends - disjoint.starts).sum())


def covered_before(disjoint: Intervals, instants: Ints) -> Ints:
    """Return how much of a disjoint set lies before each instant, in ns; differences give what lies between two."""
    if disjoint.starts.size == 0:
        return np.zeros(instants.size, np.int64)
    whole = np.concatenate(([0], np.cumsum(disjoint.ends - disjoint.starts)))
    at = np.searchsorted(disjoint.starts, instants, side="right")
    # of the interval the instant lies in, only what is before it
    beyond = np.where(at > 0, np.maximum(disjoint.ends[np.maximum(at - 1, 0)] - instants, 0), 0)
    before: Ints = whole[at] - beyond
    return before


def clip(some: Intervals, start: int, end: int) -> Intervals:
    """Return the parts of the intervals that lie in `[start, end)`; order is kept, empty ones are dropped."""
    starts, ends = np.maximum(some.starts, start), np.minimum(some.ends, end)
    real = ends > starts
    return Intervals(starts[real], ends[real])


def intersect(left: Intervals, right: Intervals) -> Intervals:
    """Return the disjoint set of instants that both disjoint sets cover."""
    return _where(left, right, inside_right=True)


def difference(left: Intervals, right: Intervals) -> Intervals:
    """Return the disjoint set of instants that the disjoint set `left` covers and `right` does not."""
    return _where(left, right, inside_right=False)


def _where(left: Intervals, right: Intervals, inside_right: bool) -> Intervals:
    if left.starts.size == 0 or right.starts.size == 0:
        return EMPTY if inside_right else left
    edges = distinct(np.concatenate((*left, *right)))
    starts, ends = edges[:-1], edges[1:]
    keep = covers(left, starts) & (covers(right, starts) == inside_right)
    return union(Intervals(starts[keep], ends[keep]))


def distinct(instants: Ints) -> Ints:
    """Return each instant once, ascending; many times as fast as numpy's own for times, of which few are equal."""
    instants = np.sort(instants)
    new = np.ones(instants.size, bool)
    new[1:] = instants[1:] > instants[:-1]
    once: Ints = instants[new]
    return once


def is_among(values: Ints, some: Ints) -> npt.NDArray[np.bool_]:
    """Tell of each value whether it is one of some others; for many of both, several times as fast as numpy's own."""
    if not some.size:
        return np.zeros(values.size, bool)
    known = distinct(some)
    found: npt.NDArray[np.bool_] = known[np.minimum(np.searchsorted(known, values), known.size - 1)] == values
    return found


def covers(disjoint: Intervals, instants: Ints) -> npt.NDArray[np.bool_]:
    """Tell of each instant whether a disjoint set covers it."""
    if disjoint.starts.size == 0:
        return np.zeros(instants.size, bool)
    at = np.searchsorted(disjoint.starts, instants, side="right") - 1
    inside: npt.NDArray[np.bool_] = (at >= 0) & (instants < disjoint.ends[np.maximum(at, 0)])
    return inside


def split_by_priority(edges: Ints, layers: Sequence[Intervals]) -> Ints:
    """Share out the time of consecutive windows among layers: each instant counts for the first layer active in it.

    `edges` (ascending, n + 1) bound n windows; `layers` are disjoint sets, most important first. Returns ns, of shape
    (windows, layers + 1); the last column is the time no layer covers. A row adds up to its window exactly, since
    each elementary segment between two neighbouring edges is counted once.
    """
    windows = edges.size - 1
    shares = np.zeros((windows, len(layers) + 1), np.int64)
    start, end = int(edges[0]), int(edges[-1])
    clipped = [clip(layer, start, end) for layer in layers]
    times = np.concatenate([edges, *[part for layer in clipped for part in layer]])
    # one bit a layer: +bit where it begins, -bit where it ends; a disjoint layer's bit is never added twice
    changes = np.concatenate(
        [np.zeros(edges.size, np.int64)]
        + [
            np.concatenate((np.full(layer.starts.size, 1 << bit), np.full(layer.ends.size, -(1 << bit))))
            for bit, layer in enumerate(clipped)
        ]
    )
    order = np.argsort(times, kind="stable")
    times, active = times[order], np.cumsum(changes[order])
    durations = np.diff(times)
    real = durations > 0
    durations, active, times = durations[real], active[:-1][real], times[:-1][real]
    first_layer = np.full(active.size, len(layers), np.int64)
    for bit in range(len(layers) - 1, -1, -1):
        first_layer[(active >> bit) & 1 == 1] = bit
    window = np.searchsorted(edges, times, side="right") - 1
    # of one index, numpy adds ten times as fast as of two
    np.add.at(shares.reshape(-1), window * shares.shape[1] + first_layer, durations)
    return shares
