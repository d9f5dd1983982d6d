"""When the host launched each device activity, and from when on it was enqueued.

A launch is followed by the correlation that the activity and the runtime call share. A kernel is enqueued when the call
that launches it returns, or when it starts, if that is earlier: a first launch can load a module for seconds, and
the device idles for want of work meanwhile. Of a call that launches several (a graph) all are enqueued with the first.
A copy's call may return only when the copy is done, so there the call's begin has to do.
"""

from typing import NamedTuple

import numpy as np

from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import KERNEL, Trace

_LAUNCHING = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch", "hipLaunch", "hipExtLaunch",
              "hipModuleLaunch", "hipExtModuleLaunch", "hipGraphLaunch")  # fmt: skip


class LaunchTimes(NamedTuple):
    """By activity, in file order; times in ns of the file's clock, -1 where nothing tells."""

    start: Ints  # when the host began to launch it
    enqueued: Ints
    thread: Ints  # that launched it
    returned: Ints  # when the call that launches it was over


def is_kernel_launch(name: str) -> bool:
    """Tell whether a runtime call launches kernels; a host function runs on no device."""
    return name.startswith(_LAUNCHING) and "Host" not in name


def find_launches(trace: Trace) -> LaunchTimes:
    """Return when, from when on, and by which thread each activity was launched."""
    calls, activities = trace.runtime, trace.activities
    start = np.full(len(activities), -1, np.int64)
    enqueued = np.full(len(activities), -1, np.int64)
    thread = np.full(len(activities), -1, np.int64)
    returned = np.full(len(activities), -1, np.int64)
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
        returned[hit] = calls.end[call]
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
                returned[index] = trace.operators.end[row]
    return LaunchTimes(start, enqueued, thread, returned)


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
