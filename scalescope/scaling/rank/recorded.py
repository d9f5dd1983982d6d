"""What recording was charged with while a rank's host went from call to call: counts, from which its cost follows.

The profiler takes time where it records: as an operator is entered and left, around each call of the runtime, at each
Python frame. So each is counted where it happened: in the stretch before a call of the host, or in the call. What CUPTI
itself says that it stopped the host for (`overhead`: a buffer asked for, flushed, full) is known to the ns.

Only what happens on threads that launch work counts: what a watchdog's thread asks the runtime for holds up nobody.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scalescope.scaling.trace.intervals import EMPTY, Intervals, Ints, covered_before, union
from scalescope.scaling.trace.trace import Stretches, Trace

Counts = npt.NDArray[np.int32]

#: Columns of the counts: entries and exits of operators and annotations, calls of the runtime or driver, entries and
#: exits of Python frames, and ns of the profiler's own overhead.
OPERATOR_EDGES, RUNTIME_CALLS, FRAME_EDGES, OVERHEAD_NS = range(4)
KINDS = 4
#: Of fewer edges of Python frames nothing is told. Stretches of so many, of which the densest share (per cent) tell.
_ENOUGH_FRAMES, _STRETCH, _DENSEST = 2_000, 32, 10
#: The call that launches a kernel and nothing else, the same in all programs. Of fewer nothing is told; and their lower
#: quartile is: launches that wait for room in the device's queue say nothing of the host.
_LAUNCH, _ENOUGH_LAUNCHES, _QUARTILE = "cudaLaunchKernel", 30, 25


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was recorded on the way to each host call, inside it, and on CPUs inside each activity: (rows, KINDS)."""

    before: Counts  # by call: since the one before it returned
    during: Counts  # by call
    inside: Counts  # by activity, of those that run on the host; no rows where a device runs them
    shapes: bool  # whether operators were recorded with the shapes of their inputs, which costs more
    #: Where entries and exits of Python frames follow each other most closely, how far apart they are, ns: what
    #: recording one takes is part of that. None: there are too few.
    frame_edge_ns: float | None = None
    launch_ns: float | None = None  # what a kernel's launch takes the host, recorded; None: there are too few

    @property
    def stacks(self) -> bool:
        """Whether Python frames were recorded."""
        return bool(self.before[:, FRAME_EDGES].any() or self.during[:, FRAME_EDGES].any())


def count_recorded(
    trace: Trace,
    starts: Ints,
    ends: Ints,
    threads: Collection[int],
    inside: Intervals = EMPTY,
    on_host: npt.NDArray[np.bool_] | None = None,
) -> Recorded:
    """Count what was recorded before and in calls (ascending by start, absolute ns), by events of these threads.

    `inside`: a CPU's activities; of those that are `on_host` what was recorded in them is counted, and calls that are
    those activities themselves (they end together) are charged nothing.
    """
    base = trace.header.base_ns
    edges = _Edges(trace, list(threads))
    starts, ends = starts - base, ends - base
    reach = np.maximum.accumulate(ends) if ends.size else ends
    returned = np.concatenate((starts[:1], reach[:-1]))
    begun = np.maximum(starts, returned)
    within = np.zeros((inside.starts.size, KINDS), np.int32)
    if on_host is not None:
        within[on_host] = edges.between(inside.starts[on_host] - base, inside.ends[on_host] - base)
    return Recorded(
        before=edges.between(returned, begun),
        during=edges.between(begun, np.maximum(ends, begun)),
        inside=within,
        shapes=bool(trace.header.record_shapes),
        frame_edge_ns=edges.closest_frames(),
        launch_ns=_typical_launch(trace, threads),
    )


def _typical_launch(trace: Trace, threads: Collection[int]) -> float | None:
    """Return what launching a kernel takes the host, ns, where nothing holds it up."""
    calls = trace.runtime
    names = [index for index, name in enumerate(trace.names) if name == _LAUNCH]
    rows = np.isin(calls.name, names) & np.isin(calls.thread, list(threads))
    if int(rows.sum()) < _ENOUGH_LAUNCHES:
        return None
    return float(np.percentile(calls.end[rows] - calls.start[rows], _QUARTILE))


class _Edges:
    """The instants at which something was recorded, in ns of the file's clock."""

    def __init__(self, trace: Trace, threads: list[int]) -> None:
        operators = [
            part[np.isin(spans.thread, threads)]
            for spans in (trace.operators, trace.annotations)
            for part in (spans.start, spans.end)
        ]
        runtime = trace.runtime.end[np.isin(trace.runtime.thread, threads)]
        on_threads = np.isin(trace.frames.thread, threads)
        frames = [trace.frames.start[on_threads], trace.frames.end[on_threads]]
        self._operators = np.sort(np.concatenate(operators))
        self._runtime = np.sort(runtime)
        self._frames = np.sort(np.concatenate(frames))
        self._overhead = standstill(trace.overhead, self._operators, self._runtime)

    def closest_frames(self) -> float | None:
        """Return the mean distance of Python frames' edges in the stretches in which they are densest."""
        if self._frames.size < _ENOUGH_FRAMES:
            return None
        length = (self._frames[_STRETCH:] - self._frames[:-_STRETCH]) / _STRETCH
        return float(np.percentile(length, _DENSEST))

    def between(self, left: Ints, right: Ints) -> Counts:
        """Return what lies in each `(left, right]`: (rows, KINDS)."""
        found = np.zeros((left.size, KINDS), np.int32)
        for column, instants in (
            (OPERATOR_EDGES, self._operators),
            (RUNTIME_CALLS, self._runtime),
            (FRAME_EDGES, self._frames),
        ):
            found[:, column] = np.searchsorted(instants, right, "right") - np.searchsorted(instants, left, "right")
        found[:, OVERHEAD_NS] = covered_before(self._overhead, right) - covered_before(self._overhead, left)
        return found


def standstill(overhead: Stretches, *instants: Ints) -> Intervals:
    """Return the overhead that stopped the host: while CUPTI's own thread works, the host goes on recording.

    `instants`: when something of the host begins or ends, ascending, on the clock of `overhead`. In what stops the host
    nothing else does; calls that lie in each other may share its edges.
    """
    if not len(overhead):
        return EMPTY
    went_on = np.zeros(len(overhead), np.int64)
    for ascending in instants:
        went_on += np.searchsorted(ascending, overhead.end, side="left")
        went_on -= np.searchsorted(ascending, overhead.start, side="right")
    stopped = went_on == 0
    return union(Intervals(overhead.start[stopped], overhead.end[stopped]))
