"""What was recorded of the threads that drive training on one rank, in order: operators, runtime calls, annotations.

Those threads are the training loop's own and the ones on which autograd runs the backward pass. What other threads do
(a watchdog polls, a collective's run loop sends, a worker prepares batches) holds training up only where one of these
waits for it.
"""

import re

import msgspec
import numpy as np
import numpy.typing as npt

from scalescope.scaling.evidence.host_calls import object_collectives
from scalescope.scaling.rank.recorded import standstill
from scalescope.scaling.rank.step_sources.profiler import PROFILER_STEP
from scalescope.scaling.rank.step_sources.steps import Steps
from scalescope.scaling.trace.families import ENGINE_FRAMES
from scalescope.scaling.trace.intervals import EMPTY, Intervals, Ints, is_among, union
from scalescope.scaling.trace.trace import HostSpans, Ids, Stretches, Trace

Mask = npt.NDArray[np.bool_]

#: Shorter gaps are what Python takes between operators, ns.
SHORTEST_GAP_NS = 20_000
#: What Inductor records around a compiled graph, by the hash of its code, in which each rank's device stands.
_GRAPH = re.compile(r"(## Call CompiledFxGraph) \w+ ##")
#: What a gap lies inside of in which Python collects its garbage, as if that were an operator.
COLLECTOR = "scalescope:gc"


class Spans(msgspec.Struct, frozen=True):
    """Host events, ascending by start. Times in absolute ns."""

    start: Ints
    end: Ints
    name: Ids  # index into the trace's names
    thread: Ints
    correlation: Ints

    def __len__(self) -> int:
        return int(self.start.size)

    def of(self, chosen: Ints | Mask) -> "Spans":
        """Return the events at these rows, or where this mask is true."""
        return Spans(self.start[chosen], self.end[chosen], self.name[chosen], self.thread[chosen],
                     self.correlation[chosen])  # fmt: skip

    @property
    def intervals(self) -> Intervals:
        """Return their intervals, as they stand."""
        return Intervals(self.start, self.end)


class HostTimeline(msgspec.Struct, frozen=True):
    """The threads that drive training. Step k is `[edges[k], edges[k + 1])`, absolute ns; one step where none is named.

    `recording`: when the profiler works and the host stands still, a disjoint set: between two ProfilerSteps, which
    belongs to the step before, and where the trace says so itself (a buffer asked for, or flushed).
    """

    names: list[str]
    numbers: tuple[int, ...]  # of the steps, as the profiler counts them
    edges: Ints
    recording: Intervals
    loop: int  # the training loop's thread
    operators: Spans
    calls: Spans  # of the runtime and the driver
    annotations: Spans  # on the loop's thread, without the steps' own
    beside: Ints  # when threads of the process that run no operators put work on the device, ascending
    collections: Intervals  # of Python's garbage on these threads, a disjoint set: where the trace's header says so
    still: Intervals  # at least SHORTEST_GAP_NS long each: where no operator, call or step begins or ends

    def __len__(self) -> int:
        return len(self.numbers)

    def step_of(self, instants: Ints) -> Ints:
        """Return the index of the step that each instant lies in, -1 outside."""
        index = np.searchsorted(self.edges, instants, side="right") - 1
        index[(instants < self.edges[0]) | (instants >= self.edges[-1])] = -1
        return index.astype(np.int64)

    def named(self, pattern: re.Pattern[str]) -> Mask:
        """Return, by name, whether the pattern is found at its begin, as a mask over the trace's names."""
        return np.array([pattern.match(name) is not None for name in self.names], bool)


def host_timeline(trace: Trace, steps: Steps) -> HostTimeline | None:
    """Return what was recorded of the training loop's and autograd's threads; None where nothing was.

    `steps`: the trace's, in absolute ns.
    """
    base = trace.header.base_ns
    threads = _driving_threads(trace, steps)
    if not threads:
        return None
    operators = _spans(trace.operators, threads, base)
    calls = _spans(trace.runtime, threads, base)
    if not len(operators) and not len(calls):
        return None
    annotations = _spans(trace.annotations, threads[:1], base)
    names, canonical = _whichever_graph(trace.names)
    operators, annotations = (
        msgspec.structs.replace(one, name=canonical[one.name]) for one in (operators, annotations)
    )
    names, operators = _with_object_collectives(names, operators, threads[0])
    collections = _collections(trace, threads)
    names = [*names, COLLECTOR] if collections.starts.size else names
    own = np.array([PROFILER_STEP.match(name) is None for name in trace.names], bool)
    instants = np.concatenate([operators.start, operators.end, calls.start, calls.end])
    instants.sort()
    # a launch that waits for room in the device's queue is counted as overhead, too, and is none
    waits = is_among(trace.overhead.start, trace.queue_full.start)
    overhead = Stretches(
        trace.overhead.start[~waits] + base, trace.overhead.end[~waits] + base, trace.overhead.thread[~waits]
    )
    recording = standstill(overhead, instants)
    if len(steps):
        edges = np.concatenate((steps.start, steps.end[-1:]))
        if steps.source == "profiler":
            recording = union(recording, Intervals(steps.end[:-1], steps.start[1:]))
        numbers = tuple(int(number) for number in steps.numbers)
        bounds = np.sort(np.concatenate((edges, steps.end)))
        instants = np.concatenate((instants, bounds))
        instants.sort()
    else:
        edges = np.array([instants[0], instants[-1] + 1], np.int64)
        numbers = (0,)
    if collections.starts.size:  # what lies between two operators may be one of them in part
        instants = np.sort(np.concatenate((instants, *collections)))
    return HostTimeline(
        names=names,
        numbers=numbers,
        edges=edges,
        recording=recording,
        loop=threads[0],
        operators=operators,
        calls=calls,
        annotations=annotations.of(own[annotations.name]),
        beside=_launched_beside(trace, threads) + base,
        collections=collections,
        still=_long_enough(instants),
    )


def _whichever_graph(names: list[str]) -> tuple[list[str], Ids]:
    """Return names without the hashes of compiled graphs, and of each the number of the first that is called so.

    The same graph has another hash on each rank: nothing of one rank's would ever be found on the others.
    """
    called = [_GRAPH.sub(r"\1 ##", name) for name in names]
    first: dict[str, int] = {}
    return called, np.array([first.setdefault(name, at) for at, name in enumerate(called)], np.int32)


def _collections(trace: Trace, threads: list[int]) -> Intervals:
    """Return when these threads collected Python's garbage, absolute ns."""
    found = [one for one in trace.header.own.collections if one.thread in threads and one.end_ns > one.start_ns]
    if not found:
        return EMPTY
    return union(
        Intervals(
            np.array([one.start_ns for one in found], np.int64), np.array([one.end_ns for one in found], np.int64)
        )
    )


def _with_object_collectives(names: list[str], operators: Spans, loop: int) -> tuple[list[str], Spans]:
    """Return names and operators with an operator around what each collective of Python objects makes."""
    own = operators.of(operators.thread == loop)
    found = object_collectives(own.start, own.end, own.name, names)
    if not found:
        return names, operators
    added = sorted({name for _, _, name in found})
    number = {name: len(names) + at for at, name in enumerate(added)}
    outer = Spans(
        np.array([start for start, _, _ in found], np.int64),
        np.array([end for _, end, _ in found], np.int64),
        np.array([number[name] for _, _, name in found], operators.name.dtype),
        np.full(len(found), loop, operators.thread.dtype),
        np.full(len(found), -1, operators.correlation.dtype),
    )
    columns = ("start", "end", "name", "thread", "correlation")
    both = Spans(*(np.concatenate((getattr(outer, one), getattr(operators, one))) for one in columns))
    return [*names, *added], both.of(np.argsort(both.start, kind="stable"))


def _long_enough(instants: Ints) -> Intervals:
    """Return the stretches from one instant (ascending) to the next that are no shorter than a gap."""
    rows = np.flatnonzero(np.diff(instants) >= SHORTEST_GAP_NS)
    return Intervals(instants[rows], instants[rows + 1])


def _driving_threads(trace: Trace, steps: Steps) -> list[int]:
    """Return the training loop's thread, which annotates the steps or else does most, and autograd's."""
    engine = np.array([name.startswith(ENGINE_FRAMES) for name in trace.names], bool)
    backward = np.unique(trace.operators.thread[engine[trace.operators.name]]).tolist() if len(trace.operators) else []
    loop = steps.thread
    if loop is None:
        busy = trace.operators.thread if len(trace.operators) else trace.runtime.thread
        if not busy.size:
            return []
        found, counts = np.unique(busy, return_counts=True)
        loop = int(found[counts.argmax()])
    launching = [] if backward else _launching_threads(trace)
    return [loop, *(thread for thread in (*backward, *launching) if thread != loop)]


def _launched_beside(trace: Trace, threads: list[int]) -> Ints:
    """Return when other threads put work on the device, such as a decoder's, in the trace's own time."""
    calls = trace.runtime
    launches = np.flatnonzero(_launches(trace))
    others = [
        thread
        for thread in np.unique(calls.thread[launches]).tolist()
        if thread not in threads and not (trace.operators.thread == thread).any()
    ]
    starts: Ints = np.sort(calls.start[launches[np.isin(calls.thread[launches], others)]])
    return starts


def _launching_threads(trace: Trace) -> list[int]:
    """Return the threads whose calls put work on the device: all that is known where no operators were recorded."""
    return [int(thread) for thread in np.unique(trace.runtime.thread[_launches(trace)])]


def _launches(trace: Trace) -> Mask:
    """Return which calls put work on the device, as a mask over the trace's."""
    numbers = trace.runtime.correlation
    return is_among(numbers, trace.activities.correlation) & (numbers > 0)


def _spans(spans: HostSpans, threads: list[int], base: int) -> Spans:
    rows = np.flatnonzero(np.isin(spans.thread, threads))
    rows = rows[np.argsort(spans.start[rows], kind="stable")]
    return Spans(
        spans.start[rows] + base,
        spans.end[rows] + base,
        spans.name[rows],
        spans.thread[rows],
        spans.correlation[rows],
    )
