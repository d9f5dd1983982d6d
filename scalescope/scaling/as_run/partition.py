"""The partition of a replayed step: the same parts, by the same rules, as those of the traced one.

What a replay gives is when everything begins and ends; from there on the intervals are cut as a trace's are. Its times
are rounded to whole ns first, so that the parts add up to the window exactly.
"""

from collections.abc import Sequence

import numpy as np

from scalescope.scaling.rank.partition import Layers, Partition, Windows, assemble, complete, split_idle, total
from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE, COPY
from scalescope.scaling.replay.engine.timing import Timing
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.trace.intervals import EMPTY, Intervals, Ints, clip, difference, union


def partition_replayed(graph: Graph, timing: Timing, *, on_cpu: bool) -> dict[int, Partition]:
    """Return each rank's partition over its replayed steps that a next one bounds; over the only one, where that is so.

    `timing`: of the whole graph. Ranks on which no step has a length are left out.
    """
    found = {}
    for rank in graph.ranks:
        windows = replayed_windows(graph, timing, rank)
        if windows is not None:
            found[rank] = _partition(graph, timing, rank, windows, on_cpu)
    return found


def replayed_windows(graph: Graph, timing: Timing, rank: int) -> Windows | None:
    """Return a rank's replayed steps that a next one bounds, or the only one; None where not all have a length."""
    edges = [timing.begin[at] for at in graph.steps[rank]]
    if len(edges) == 1:
        edges.append(edges[0] + timing.step_ns(graph)[rank][0])
    whole = np.rint(np.array(edges)).astype(np.int64)
    if whole.size < 2 or bool((np.diff(whole) <= 0).any()):
        return None
    return Windows(list(range(whole.size - 1)), whole, False)


def _partition(graph: Graph, timing: Timing, rank: int, windows: Windows, on_cpu: bool) -> Partition:
    rows = np.array([at for stream in graph.order[rank] for at in stream], np.int64)
    begins = np.rint(np.array(timing.begin)[rows]).astype(np.int64)
    ends = np.rint(np.array(timing.end)[rows]).astype(np.int64)
    kinds = np.array([graph.activities[at].kind for at in rows.tolist()], np.int64)
    loads = np.array([at in graph.loading for at in rows.tolist()], bool)
    compute, communication, copies = (
        union(Intervals(begins[chosen], ends[chosen]))
        for chosen in ((kinds == COMPUTE) & ~loads, kinds == COMMUNICATION, kinds == COPY)
    )
    data = union(_loading(timing, rank), Intervals(begins[loads], ends[loads]))
    busy = union(compute, communication, copies)
    if on_cpu:  # nothing is ever enqueued ahead
        whole = Intervals(windows.edges[:1], windows.edges[-1:])
        late, queued = difference(whole, clip(busy, int(windows.edges[0]), int(windows.edges[-1]))), EMPTY
    else:
        order = np.argsort(begins, kind="stable")
        late, queued = split_idle(begins[order], _enqueued(graph, timing, rank, rows, begins)[order], windows, busy)
    layers = Layers(compute, communication, copies, data, late, queued)
    transfer, wait = _waits(graph, timing, rows[kinds == COMMUNICATION].tolist())
    return total(complete(assemble(windows, layers), transfer, wait))


def _loading(timing: Timing, rank: int) -> Intervals:
    spans = np.rint(np.array(timing.loading[rank], np.float64).reshape(-1, 2)).astype(np.int64)
    return Intervals(spans[:, 0], spans[:, 1])


def _enqueued(graph: Graph, timing: Timing, rank: int, rows: Ints, begins: Ints) -> Ints:
    """Return from when on the device could have run each activity: a kernel once its launch returns; -1: not told."""
    returned = np.zeros(len(graph.activities))
    for call in graph.calls[rank]:
        if call.launches >= 0 and graph.activities[call.launches].kind != COPY:
            returned[call.launches] = call.duration_ns
    launched = np.array(timing.launch)[rows]
    found: Ints = np.where(launched < 0, -1, np.rint(launched + returned[rows])).astype(np.int64)
    return np.where(launched < 0, -1, np.minimum(found, begins))


def _waits(graph: Graph, timing: Timing, rows: Sequence[int]) -> tuple[Intervals, Intervals]:
    """Return when one rank's collectives transfer and when they wait, not merged; those that tell neither left out."""
    waits: list[tuple[float, float, float]] = []
    for at in rows:
        node = graph.activities[at]
        begin, end = timing.begin[at], timing.end[at]
        if node.collective >= 0:
            transfer = graph.transfers[node.collective]
            if transfer.whole:
                arrived = max(timing.begin[one] for one in transfer.members.values())
                waits.append((begin, min(arrived, end), end))
        elif node.wait_ns >= 0:
            waits.append((begin, min(begin + node.wait_ns, end), end))
    times = np.rint(np.array(waits, np.float64).reshape(-1, 3)).astype(np.int64)
    return Intervals(times[:, 1], times[:, 2]), Intervals(times[:, 0], times[:, 1])
