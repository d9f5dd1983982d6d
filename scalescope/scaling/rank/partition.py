"""The partition: where each nanosecond of a rank's steps went, exact, each part computed from intervals.

A device step runs from the first compute kernel of step k to that of step k + 1. Inside it every instant counts for the
first that applies: a compute kernel runs; communication runs (later told apart into transfer, wait and unsplit); a copy
runs; the host loads data; the next activity has not been enqueued yet; it has been, and the device is idle all the
same.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE, COPY, Timeline
from scalescope.scaling.trace.intervals import (
    EMPTY,
    Intervals,
    Ints,
    clip,
    difference,
    intersect,
    length,
    split_by_priority,
    union,
)


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one rank in one stretch, in integer ns. All but `window` add up to `window`."""

    window: int
    compute: int
    transfer: int
    wait: int
    unsplit: int
    memory: int
    data: int
    launch: int
    queued: int

    @property
    def parts(self) -> tuple[int, ...]:
        """The eight parts, in the order of answer.PARTS."""
        return (self.compute, self.transfer, self.wait, self.unsplit, self.memory, self.data, self.launch, self.queued)

    def __add__(self, other: "Partition") -> "Partition":
        return Partition(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class Windows(msgspec.Struct, frozen=True):
    """Consecutive device steps: step i is `[edges[i], edges[i + 1])`. Times are absolute ns."""

    numbers: list[int]  # the ProfilerStep's number
    edges: Ints
    open_ended: bool  # the last step ends at its last activity, since nothing of a next one bounds it

    def __len__(self) -> int:
        return len(self.numbers)


class OneRankShares(msgspec.Struct, frozen=True):
    """What one rank's trace alone can say: the partition with communication still in one piece."""

    windows: Windows
    shares: Ints  # (windows, 6) ns: compute, communication, memory, data, launch, queued
    exposed: Intervals  # where communication runs and no compute does, inside the windows; disjoint
    communication_ns: int  # union of the collectives inside the windows, hidden or not
    hidden_ns: int  # of that, under compute


def device_windows(timeline: Timeline) -> Windows:
    """Return the device steps of a timeline; one window over all linked activity where there are no steps.

    A step begins with the first compute kernel launched in it, on the stream that computes most. Its very first
    activity need not be that: a loader that copies the next batch on a stream of its own, or a gather that runs ahead,
    starts while the step before still computes. Only where a step computes nothing does its first activity begin it.
    What the end of a file has cut is no step: it bounds the one before. Where no step is whole all are as they stand.
    """
    linked = timeline.linked
    numbers: list[int] = []
    edges: list[int] = []
    whole = 0
    for index, row in _first_rows(timeline):
        first = int(timeline.start[row])
        if edges and first <= edges[-1]:
            continue  # began nothing on the device before the next step did
        whole += index < timeline.whole
        numbers.append(int(timeline.steps.numbers[index]))
        edges.append(first)
    counted = linked if linked.any() else np.ones(timeline.start.size, bool)
    if not numbers and timeline.start.size:
        numbers, edges = [0], [int(timeline.start[counted].min())]
    whole = min(whole, len(numbers) - 1)
    if whole > 0:
        return Windows(numbers[:whole], np.array(edges[: whole + 1], np.int64), False)
    if numbers:
        in_steps = timeline.step >= 0
        last = int(timeline.end[in_steps if in_steps.any() else counted].max())
        edges.append(max(last, edges[-1] + 1))
    return Windows(numbers, np.array(edges, np.int64), True)


def _first_rows(timeline: Timeline) -> list[tuple[int, int]]:
    """Return (step, row of the activity that begins it), ascending by step."""
    computing = timeline.kind == COMPUTE
    streams, of_row = np.unique(timeline.stream, return_inverse=True)
    time = np.zeros(streams.size, np.int64)
    np.add.at(time, of_row[computing], (timeline.end - timeline.start)[computing])
    main = computing & (of_row == int(time.argmax())) if streams.size else computing
    first: dict[int, int] = {}
    # activities ascend by start, so a step's first row is its earliest; the choices, best first
    for eligible in (main, computing, np.ones(computing.size, bool)):
        rows = np.flatnonzero(eligible & (timeline.step >= 0))
        steps, at = np.unique(timeline.step[rows], return_index=True)
        for step, row in zip(steps.tolist(), rows[at].tolist(), strict=True):
            first.setdefault(step, row)
    return sorted(first.items())


def share_out(timeline: Timeline, data_loading: Intervals) -> OneRankShares:
    """Partition a device timeline. `data_loading` is when the host loads data, absolute ns."""
    windows = device_windows(timeline)
    return assemble(windows, device_layers(timeline, windows, data_loading))


class Layers(NamedTuple):
    """What a rank's time is shared out among, the most important first: disjoint sets, absolute ns."""

    compute: Intervals
    communication: Intervals
    copies: Intervals
    data: Intervals  # the host loads data
    late: Intervals  # idle, and what comes next is not enqueued yet
    queued: Intervals  # idle, although it is


NO_LAYERS = Layers(EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)


def device_layers(timeline: Timeline, windows: Windows, data_loading: Intervals) -> Layers:
    """Return what the steps of a device timeline are shared out among."""
    compute = union(timeline.of_kind(COMPUTE))
    communication = union(timeline.of_kind(COMMUNICATION))
    copies = union(timeline.of_kind(COPY))
    late, queued = idle_by_launch(timeline, windows, union(compute, communication, copies))
    return Layers(compute, communication, copies, union(data_loading), late, queued)


def assemble(windows: Windows, layers: Layers) -> OneRankShares:
    """Share out the windows among the layers."""
    shares = split_by_priority(windows.edges, layers)
    start, end = int(windows.edges[0]), int(windows.edges[-1])
    inside = clip(layers.communication, start, end)
    exposed = difference(inside, layers.compute)
    total = length(inside)
    return OneRankShares(windows, shares[:, :6], exposed, total, total - length(exposed))


def idle_by_launch(timeline: Timeline, windows: Windows, busy: Intervals) -> tuple[Intervals, Intervals]:
    """Split the device's idle gaps where what ends each was enqueued: before it the host is late, then work is queued.

    An activity of unknown launch that ends a gap counts as launched already: that is known of those launched before
    the window, and for others the trace's quality says that launches are missing.
    """
    return split_idle(timeline.start, timeline.enqueued, windows, busy)


def split_idle(starts: Ints, enqueued: Ints, windows: Windows, busy: Intervals) -> tuple[Intervals, Intervals]:
    """Split idle gaps as `idle_by_launch` does, by when activities start and are enqueued; -1 where that is not known.

    `starts` ascend.
    """
    start, end = int(windows.edges[0]), int(windows.edges[-1])
    gaps = difference(Intervals(windows.edges[:1], windows.edges[-1:]), clip(busy, start, end))
    if gaps.starts.size == 0:
        return EMPTY, EMPTY
    # of several activities that start together, the earliest enqueued ended the gap
    order = np.lexsort((enqueued, starts))
    at = np.searchsorted(starts[order], gaps.ends)
    known = at < order.size
    ended_by = np.where(known, enqueued[order[np.minimum(at, order.size - 1)]], -1)
    ready = np.clip(ended_by, gaps.starts, gaps.ends)
    return union(Intervals(gaps.starts, ready)), union(Intervals(ready, gaps.ends))


def complete(shares: OneRankShares, transfer: Intervals, wait: Intervals) -> list[Partition]:
    """Tell the exposed communication apart, given when this rank's collectives transfer and wait; a partition a step.

    Where several collectives are active at once, transfer counts before wait, wait before what cannot be split.
    """
    windows = shares.windows
    layers = [intersect(shares.exposed, union(transfer)), intersect(shares.exposed, union(wait)), shares.exposed]
    split = split_by_priority(windows.edges, layers)
    return [
        Partition(
            window=int(windows.edges[index + 1] - windows.edges[index]),
            compute=int(shares.shares[index, 0]),
            transfer=int(split[index, 0]),
            wait=int(split[index, 1]),
            unsplit=int(split[index, 2]),
            memory=int(shares.shares[index, 2]),
            data=int(shares.shares[index, 3]),
            launch=int(shares.shares[index, 4]),
            queued=int(shares.shares[index, 5]),
        )
        for index in range(len(windows))
    ]


def total(partitions: Sequence[Partition]) -> Partition:
    """Return the partition of all steps together."""
    whole = partitions[0]
    for part in partitions[1:]:
        whole = whole + part
    return whole
