"""Copies taken out of a step: what moves between memories, what the host does to issue it, and its waits for it.

What stays in one device's memory is moved by what computes there: a clone, or a fill of zeros, is a copy by the name of
the call that makes it, and a kernel where torch takes another way to the same. No pinned memory makes it quicker.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from scalescope.scaling.rank.annotations.loading import copies_from_host, copies_within, stays_on_device
from scalescope.scaling.rank.timeline import COPY
from scalescope.scaling.replay.graph import Graph, HostCall, median
from scalescope.scaling.replay.ranks.extra import steps_of
from scalescope.scaling.replay.ranks.reads import Read, reads_of
from scalescope.scaling.replay.ranks.shortened import shorten_host
from scalescope.scaling.replay.ranks.side_by_side import SideBySide

#: What launching a copy takes the host where it need not wait for it, ns.
_LAUNCH_NS = 10_000.0
#: What a host takes between two copies for no longer than this, ns, is the operators around the second one.
_ISSUES_NS = 150_000.0
#: So many copies behind one another could be one.
_MANY = 8


def free_copies(graph: Graph, rank: int, *, alone: bool) -> None:
    """Take a rank's copies out, with what waits for them; `alone`: the others do without them.

    Then also what stays on the device, and where its host reads what takes no time to copy. Of copies that all ranks
    make, a host that reads a figure waits for what computes it, which no other way of copying makes shorter.
    """
    reads = reads_of(graph, rank)
    calls = graph.calls[rank]
    runs = [] if alone else [run for run in _runs(graph, calls) if _is_more_than_figures(graph, calls, run)]
    moved = {at for run in runs for at in run}
    read = set() if alone else {one.copy for one in reads if one.copy not in moved and _is_figure(graph, rank, one)}
    _free_issuing(calls, runs)
    for stream in graph.order[rank]:
        for at in stream:
            if _is_copy(graph, at, alone=alone):
                graph.work_ns[at] = 0.0
    reading = {one.wait for one in reads}  # for what comes before the copy
    for at, call in enumerate(calls):  # a copy out of pageable memory holds the host up, too
        if call.launches >= 0 and _is_copy(graph, call.launches, alone=alone):
            awaits = call.awaits if at in read else -1
            calls[at] = replace(call, duration_ns=min(call.duration_ns, _LAUNCH_NS), awaits=awaits)
        elif _awaits_copy(graph, call, alone=alone) and at not in reading:
            calls[at] = replace(call, duration_ns=0.0, awaits=-1)  # there is nothing left to wait for


def takes_time(graph: Graph, at: int) -> bool:
    """Tell whether an activity copies more than a figure: to read a loss takes a device 1 to 3 µs."""
    return graph.activities[at].kind == COPY and graph.work_ns[at] > _LAUNCH_NS


def free_clones(graph: Graph, rank: int) -> None:
    """Take out what a rank copies within its device's memory; what its host does to issue that stays."""
    for stream in graph.order[rank]:
        for at in stream:
            if clones(graph, at):
                graph.work_ns[at] = 0.0


def clones(graph: Graph, at: int) -> bool:
    """Tell whether an activity copies within one device's memory."""
    node = graph.activities[at]
    return node.kind == COPY and copies_within(node.name)


def moves(graph: Graph, at: int) -> bool:
    """Tell whether an activity copies from one memory to another."""
    node = graph.activities[at]
    return node.kind == COPY and not stays_on_device(node.name)


def _is_copy(graph: Graph, at: int, *, alone: bool) -> bool:
    return graph.activities[at].kind == COPY if alone else moves(graph, at)


def _runs(graph: Graph, calls: Sequence[HostCall]) -> Iterator[list[int]]:
    """Yield the calls (indices) that launch what moves between memories, those behind one another together."""
    run: list[int] = []
    for at, call in enumerate(calls):
        if call.launches < 0:
            continue
        if run and not (moves(graph, call.launches) and call.thread == calls[run[-1]].thread):
            yield run
            run = []
        if moves(graph, call.launches):
            run.append(at)
    if run:
        yield run


def _free_issuing(calls: list[HostCall], runs: Sequence[Sequence[int]]) -> None:
    """Take out what a host does to issue copies: what lies between one and the next, and as much before the first.

    Operators, and calls: a module that is moved to the device and back takes its host the walk through it. What takes
    longer than operators do is there for another reason.
    """
    typical = median([_issuing_ns(calls[at]) for run in runs for at in run[1:]])
    for run in runs if typical else ():
        for at in run:
            call, less = calls[at], min(_issuing_ns(calls[at]), typical if at == run[0] else _ISSUES_NS)
            calls[at] = replace(call, think_ns=call.think_ns - less, duration_ns=0.0)


def _issuing_ns(call: HostCall) -> float:
    return max(0.0, call.think_ns - call.data_ns)


def _is_more_than_figures(graph: Graph, calls: Sequence[HostCall], run: Sequence[int]) -> bool:
    """Whether copies behind one another, in either direction, move what takes time; biases lie between weights.

    Or are many that all go to the device, such as targets tensor by tensor: no host waits there for what is computed.
    """
    if any(graph.work_ns[calls[at].launches] > _LAUNCH_NS for at in run):
        return True
    return len(run) >= _MANY and all(copies_from_host(graph.activities[calls[at].launches].name) for at in run)


def _is_figure(graph: Graph, rank: int, read: Read) -> bool:
    return graph.work_ns[graph.calls[rank][read.copy].launches] <= _LAUNCH_NS


def _awaits_copy(graph: Graph, call: HostCall, *, alone: bool) -> bool:
    """Whether a host waits for a copy in a call of its own; for room in the queue is another thing."""
    return call.launches < 0 <= call.awaits and not call.room and _is_copy(graph, call.awaits, alone=alone)


def free_launches_of_copies(graph: Graph, side: SideBySide, rank: int) -> None:
    """Take out what a host does for copies that the others do not make: the operators around each, and its launch."""
    steps = steps_of(side)
    for at, step in enumerate(steps):
        own = side.launches[rank, step]
        block: list[int] = []  # the launches since the last one that the others make as well
        for row in range(len(own.activity)):
            block.append(row)
            if own.place[row] >= 0:
                _free_block(graph, side, rank, step, block, _shared_host_ns(side, rank, step, block))
                block = []
        if block and at + 1 < len(steps):  # what the others do meanwhile comes before their next step's first launch
            following, others = side.launches[rank, steps[at + 1]], side.others(rank, steps[at + 1], "host_ns")
            first = following.place[0] if following.place.size else -1
            spare = float(others[first] - following.host_ns[0]) if first >= 0 else 0.0
            _free_block(graph, side, rank, step, block, max(0.0, spare) if spare == spare else 0.0)


def _free_block(graph: Graph, side: SideBySide, rank: int, step: int, block: Sequence[int], shared_ns: float) -> None:
    """Take out of the copies in a block of launches what their host takes beyond what it shares with the others'."""
    own = side.launches[rank, step]
    copies = [row for row in block if own.place[row] < 0 and graph.activities[own.activity[row]].kind == COPY]
    left = float(sum(own.host_ns[row] for row in block)) - shared_ns if copies else 0.0
    for row in reversed(copies):
        less = min(left, float(own.host_ns[row]))
        if less <= 0:
            return
        shorten_host(graph, rank, own, row, less)
        left -= less


def _shared_host_ns(side: SideBySide, rank: int, step: int, block: Sequence[int]) -> float:
    """Return what the others' hosts take from the launch before a block of this rank's to the one that ends it."""
    own = side.launches[rank, step]
    after, until = own.place[block[0] - 1] if block[0] else -1, own.place[block[-1]]
    spent = []
    for other in side.ranks:
        theirs = side.launches[other, step]
        ends = np.flatnonzero(theirs.place == until)
        if other != rank and ends.size:
            begins = np.flatnonzero(theirs.place == after) if after >= 0 else ends[:0]
            spent.append(float(theirs.host_ns[(begins[0] + 1 if begins.size else 0) : ends[0] + 1].sum()))
    return median(spent)
