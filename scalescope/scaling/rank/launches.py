"""When the host launched each device activity, and from when on it was enqueued.

A launch is followed by the correlation that the activity and the runtime call share. A kernel is enqueued when the call
that launches it returns, or when it starts, if that is earlier: a first launch can load a module for seconds, and
the device idles for want of work meanwhile. Of a call that launches several (a graph) all are enqueued with the first.
A copy's call may return only when the copy is done, so there the call's begin has to do.

A device's clock may be off its host's. Nothing runs before it is launched, and what was launched before a call that
waits for the device has ended when that returns: where traces say otherwise, the device's times are moved until both
hold. A stream runs things in the order of their launches; where many are not in it, correlations lead to other calls.
"""

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import KERNEL, Trace

_LAUNCHING = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch", "hipLaunch", "hipExtLaunch",
              "hipModuleLaunch", "hipExtModuleLaunch", "hipGraphLaunch")  # fmt: skip

#: Clocks of a device and its host, which profilers bring together, are off by no more than this.
_CLOCKS_NS = 20_000
#: Nor, where they are not brought together, by more than this: then it is times that are broken.
_MOST_APART_NS = 60_000_000_000
#: What is launched begins so much later at the soonest, and a call that waits returns so much after the last end: on
#: H200s 3.6 µs to 7 and 5 to 30.
_LAUNCHING_NS, _RETURNING_NS = 4_000, 20_000
#: Fewer activities with a launch than this tell nothing of clocks and order.
_TELLING = 20
#: A share of launches that may be in disorder, or linked wrongly, for whatever reason.
_ODD = 0.001
#: By so much ends may be told in another order than they had.
_CLOCK_TICKS_NS = 1_000
#: Of more than this, times say nothing of clocks.
_DISORDER = 0.01


class LaunchTimes(NamedTuple):
    """By activity, in file order; times in ns of the file's clock, -1 where nothing tells."""

    start: Ints  # when the host began to launch it
    enqueued: Ints
    thread: Ints  # that launched it


def is_kernel_launch(name: str) -> bool:
    """Tell whether a runtime call launches kernels; a host function runs on no device."""
    return name.startswith(_LAUNCHING) and "Host" not in name


def find_launches(trace: Trace) -> LaunchTimes:
    """Return when, from when on, and by which thread each activity was launched."""
    calls, activities = trace.runtime, trace.activities
    start = np.full(len(activities), -1, np.int64)
    enqueued = np.full(len(activities), -1, np.int64)
    thread = np.full(len(activities), -1, np.int64)
    # correlation 0 is what some ROCm versions write for all communication kernels: it links nothing
    known = np.flatnonzero(calls.correlation > 0)
    if known.size:
        # of several calls with one correlation (a runtime call and the driver call in it) the first is the launch
        known = known[np.lexsort((calls.start[known], calls.correlation[known]))]
        ids = calls.correlation[known]
        at = np.searchsorted(ids, activities.correlation)
        at = np.minimum(at, ids.size - 1)
        hit = (ids[at] == activities.correlation) & (activities.correlation > 0)
        call = known[at[hit]]
        start[hit] = enqueued[hit] = calls.start[call]
        thread[hit] = calls.thread[call]
        _wait_for_return(trace, hit, at, call, enqueued)
    lost = np.flatnonzero((start < 0) & (activities.external > 0))
    if lost.size and trace.operator_communication:
        # a collective without a runtime record may still name the operator that launched it
        rows = np.array(sorted(trace.operator_communication), np.int64)
        by_external = {int(trace.operators.external[row]): row for row in rows if trace.operators.external[row] > 0}
        for index in lost.tolist():
            row = by_external.get(int(activities.external[index]))
            if row is not None and trace.operators.start[row] <= activities.start[index]:
                start[index] = enqueued[index] = trace.operators.start[row]
                thread[index] = trace.operators.thread[row]
    return LaunchTimes(start, enqueued, thread)


def disordered(trace: Trace, launch: Ints) -> int:
    """Return how many activities begin, on their stream, after one that was launched later."""
    activities = trace.activities
    known = np.flatnonzero((launch >= 0) & (activities.correlation > 0))
    known = known[np.lexsort((activities.start[known], activities.stream[known], activities.device[known]))]
    same = (np.diff(activities.stream[known]) == 0) & (np.diff(activities.device[known]) == 0)
    return int((same & (np.diff(launch[known]) < 0)).sum())


def overlapped(trace: Trace) -> int:
    """Return how many activities lie, on their stream, within one that began before them, which no stream runs so.

    A kernel may begin before the one before it ends (programmatic launches), and ends behind it. Kernels of one launch
    (a graph) may be told as of one stream wherever they run, and AMD's queues hold several streams.
    """
    activities = trace.activities
    if trace.framework != "torch" or any(name.startswith("hip") for name in trace.names):
        return 0
    known = np.flatnonzero((activities.correlation > 0) & (activities.end > activities.start))
    _, of_launch, launched = np.unique(activities.correlation[known], return_inverse=True, return_counts=True)
    known = known[launched[of_launch] == 1]
    order = np.lexsort((activities.start[known], activities.stream[known], activities.device[known]))
    known = known[order]
    if not known.size:
        return 0
    end = activities.end[known]
    new = np.flatnonzero(
        np.concatenate(([True], (np.diff(activities.stream[known]) != 0) | (np.diff(activities.device[known]) != 0)))
    )
    within = 0
    for first, until in zip(new.tolist(), [*new[1:].tolist(), known.size], strict=True):
        reach = np.maximum.accumulate(end[first:until])[:-1]
        within += int((end[first + 1 : until] < reach - _CLOCK_TICKS_NS).sum())
    return within


def misplaced(trace: Trace, launch: Ints) -> int:
    """Return how many activities begin before their launch by more than any two clocks are apart."""
    raw = trace.activities
    return int(((launch >= 0) & (raw.correlation > 0) & (launch - raw.start > _MOST_APART_NS)).sum())


def by_the_hosts_clock(trace: Trace) -> tuple[Trace, int, LaunchTimes]:
    """Return a trace with its device's times on its host's clock, by how many ns they are later, mostly by 0, and its
    activities' launches.
    """
    launches = find_launches(trace)
    offset = _device_is_behind(trace, launches.start) if trace.framework == "torch" else 0
    if not offset:
        return trace, 0, launches
    raw = trace.activities
    moved = replace(trace, activities=replace(raw, start=raw.start + offset, end=raw.end + offset))
    return moved, offset, find_launches(moved)


def _device_is_behind(trace: Trace, launch: Ints) -> int:
    """Return by how many ns a device's clock is behind its host's, below 0 where it is ahead; 0 where nothing says so.

    Of a clock that is ahead only calls that wait for all of the device tell.
    """
    raw = trace.activities
    known = (launch >= 0) & (raw.correlation > 0)
    count = int(known.sum())
    if count < _TELLING or disordered(trace, launch) > _DISORDER * count:
        return 0
    early = np.sort(launch[known] - raw.start[known])
    behind = int(early[-1 - int(_ODD * count)])
    if behind > _MOST_APART_NS:
        return 0
    if behind > _CLOCKS_NS:
        return behind + _LAUNCHING_NS
    waiting = np.array([name.endswith("DeviceSynchronize") for name in trace.names], bool)
    calls = np.flatnonzero(waiting[trace.runtime.name]) if len(trace.runtime) else np.empty(0, np.int64)
    order = np.argsort(launch[known], kind="stable")
    launched, ends = launch[known][order], np.maximum.accumulate(raw.end[known][order])
    before = np.searchsorted(launched, trace.runtime.start[calls]) - 1
    calls, before = calls[before >= 0], before[before >= 0]
    ahead = int((ends[before] - trace.runtime.end[calls]).min()) if calls.size else 0
    return -min(ahead + _RETURNING_NS, -behind) if _CLOCKS_NS < ahead < -behind else 0


def _wait_for_return(trace: Trace, hit: Ints, at: Ints, call: Ints, enqueued: Ints) -> None:
    """Move `enqueued` of the kernels that were hit from their call's begin to its end, or their first one's start."""
    calls, activities = trace.runtime, trace.activities
    launching = np.array([is_kernel_launch(name) for name in trace.names], bool)
    kernels = np.flatnonzero(hit)[(activities.kind[hit] == KERNEL) & launching[calls.name[call]]]
    if not kernels.size:
        return
    first = np.full(int(at.max()) + 1, np.iinfo(np.int64).max, np.int64)
    np.minimum.at(first, at[kernels], activities.start[kernels])
    of_call = at[kernels]
    begin, end = enqueued[kernels], calls.end[_row_of(call, hit, kernels)]
    enqueued[kernels] = np.maximum(begin, np.minimum(end, first[of_call]))


def _row_of(call: Ints, hit: Ints, kernels: Ints) -> Ints:
    """Return the runtime calls of some of the activities that were hit; `call` has one for each hit."""
    position = np.cumsum(hit) - 1
    rows: Ints = call[position[kernels]]
    return rows
