"""What waits for what in a traced step, on all ranks: the structure that a replay follows.

An activity begins when the one before it on its stream has ended, the host has launched it, and what its stream was
made to wait for has ended. Which event a stream waits for is not in the trace, but the order of the calls is:

- a collective waits for what its caller's stream had been given before it (torch records an event there);
- the n-th wait outside of a collective call is for the n-th collective that nothing has waited for yet, which is how
  DDP ends its backward pass; one right behind a collective's call is for that collective. The next activity launched
  on a stream that is not a collective's waits;
- what still begins late, right as an activity of another stream of the rank ends, waited for that one: by an event,
  or since a kernel whose blocks must all run at once (cuDNN's persistent batch norms) has no room beside a collective;
  but for one that had not ended yet when the same launch began in another step: that was chance;
- what begins late in the midst of kernels of other streams of the rank had no room beside them, and what ran after
  one of another stream goes on doing so (`engine/side_streams.py`).

What a call of the host takes between two launches is the host's own time; a call that waited (for the device's end, for
room in its queue) returns once what it awaited has happened. The threads of a rank take turns (the training loop's
waits in `backward` while autograd's launches), so one order of calls stands for all of them.

A collective's data moves once its last member has begun, on every rank.
"""

from array import array
from collections.abc import Mapping, Sequence

import numpy as np

from scalescope.records.operations import PAIRWISE, THROUGH_MEMBERS
from scalescope.scaling.rank.collective import SEND_HELD_UP_NS, RankCollective
from scalescope.scaling.rank.records.own_code.by_hand import updated_by_hand
from scalescope.scaling.rank.records.own_code.metrics import behind_updates
from scalescope.scaling.rank.records.own_code.places import kinds_by_place
from scalescope.scaling.rank.records.own_code.preparing import preparing
from scalescope.scaling.rank.records.record import LAUNCH, WAIT, RankRecord, loaded_before_calls, that_load
from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE, COPY
from scalescope.scaling.ranks.clocks import host_offsets
from scalescope.scaling.ranks.matching import match_collectives
from scalescope.scaling.ranks.waits import wait_of
from scalescope.scaling.replay.engine.side_streams import Ends, had_no_room, keep_turns
from scalescope.scaling.replay.graph import Activity, Contention, Gradient, Graph, HostCall, Transfer, median
from scalescope.scaling.replay.ranks.late_batches import late_batches
from scalescope.scaling.trace.intervals import Intervals, covered_before, union

#: The longest that dispatching an activity takes once nothing holds it up any more, ns. What lies beyond it in a trace
#: is for other reasons, which a replay does not know: it is left out there, and so it is found out.
LONGEST_DISPATCH_NS = 30_000


#: From one kernel's end to the next one's begin where both are enqueued, ns, unless the trace has any such pair.
_QUEUED_DISPATCH_NS = 1_000.0
#: From the begin of a launch to the begin of its kernel on an idle device, ns: 7.8 to 8.4 µs on H200.
LONGEST_LATENCY_NS = 8_000


def build_graph(records: Mapping[int, RankRecord], contention: Contention | None = None) -> Graph:
    """Return the structure of the ranks' traces. Times are ns since its first call or activity, on one clock."""
    ranks = sorted(records)
    collectives = {rank: records[rank].collectives for rank in ranks}
    offsets = host_offsets({rank: records[rank].host for rank in ranks}, collectives).offsets
    graph = Graph(ranks, [], array("d"), {}, {}, {}, {}, [], {}, {}, {}, {}, [], Contention())
    base: dict[int, int] = {}
    # times since 1970 in ns are too large for a float to hold exactly
    origin = min(min(record.start[:1] + [call.start for call in record.calls[:1]]) for record in records.values())
    for rank in ranks:
        base[rank] = len(graph.activities)
        _add_rank(graph, rank, records[rank], offsets.get(rank, 0) - origin)
    _add_transfers(graph, records, base, offsets)
    for rank in ranks:
        _add_overlap(graph, rank)
    for rank in ranks:
        _explain_starts(graph, rank, records[rank])
    graph.step_numbers = records[ranks[0]].steps
    graph.paced = late_batches(records)
    return graph.under(contention) if contention is not None else graph


def _add_rank(graph: Graph, rank: int, record: RankRecord, offset: int) -> None:
    first = len(graph.activities)
    streams: dict[int, list[int]] = {}
    over: dict[int, int] = {}  # by stream: when its activities so far have ended
    untold = [0] * len(record.start)
    sizes = zip(record.blocks or untold, record.inputs or untold, strict=True)
    rows = zip(record.stream, record.start, record.end, record.kind, record.step, record.name, sizes, strict=True)
    for at, (stream, start, end, kind, step, name, (grid, inputs)) in enumerate(rows, first):
        streams.setdefault(stream, []).append(at)
        # a kernel may begin while the one before it ends (programmatic dependent launch): it counts from there
        before = over.get(stream, 0)
        begun = start if start >= before else before
        begun = begun if begun <= end else end
        over[stream] = end if end > before else before
        activity = Activity(rank, stream, kind, 0.0, step, name, traced_start=begun + offset, traced_end=end + offset)
        activity.blocks, activity.inputs = grid, inputs
        graph.activities.append(activity)
        graph.work_ns.append(end - begun)
    graph.order[rank] = list(streams.values())
    graph.edges[rank] = [edge + offset for edge in record.edges]
    starts = np.array(record.start, np.int64)
    begins = []
    for edge, number in zip(record.edges[:-1], record.steps, strict=True):
        row = int(np.searchsorted(starts, edge))
        # of activities that begin together, the step's own
        while row + 1 < starts.size and starts[row + 1] == edge and record.step[row] != number:
            row += 1
        begins.append(first + min(row, starts.size - 1))
    graph.steps[rank] = begins
    if record.activity == "cpu":
        graph.loading.update(first + at for at in that_load(record))
        graph.preparing.update(first + at for at in preparing(record))
        graph.metrics.update(first + at for at in behind_updates(record))
    graph.optimizing.update(first + at for own in record.long_way.single.values() for at in own)
    graph.by_hand.update(first + at for one in updated_by_hand(record) for at in one.activities)
    graph.normalising.update(first + at for one in record.long_way.chains for at in one.activities)
    graph.by_place.update((first + at, kind) for at, kind in kinds_by_place(record).items())
    graph.double.update(first + at for at in record.long_way.double)
    graph.converting.update(first + at for at in record.long_way.converting)
    graph.recomputed.update(first + at for at in record.recomputed)
    graph.precisions.update((first + at, place) for at, place in enumerate(record.precisions) if place)
    graph.unused.update(first + at for at in record.unused)
    graph.begins[rank] = float(record.calls[0].start + offset) if record.calls else 0.0
    graph.calls[rank] = _host_calls(record, first, graph.activities, offset)
    if record.activity != "cpu":
        graph.elements[rank] = record.elements
    graph.gradients[rank] = [
        Gradient(first + record.calls[one.call].activity, one.elements * one.element_bytes, one.element_bytes)
        for one in record.gradients
    ]
    _add_waits(graph, rank, record, first)


def _host_calls(record: RankRecord, first: int, activities: Sequence[Activity], offset: int) -> list[HostCall]:
    calls: list[HostCall] = []
    returned = record.calls[0].start if record.calls else 0
    for call, loaded_ns in zip(record.calls, loaded_before_calls(record), strict=True):
        start, end = call.start, call.end
        think = start - returned if start > returned else 0
        inside = end - (start if think else returned)
        host = HostCall(
            float(think),
            loaded_ns if think else 0.0,
            float(inside) if inside > 0 else 0.0,
            first + call.activity if call.activity >= 0 else -1,
            thread=call.thread,
        )
        if call.awaits >= 0:
            awaited = activities[first + call.awaits]
            moment = (awaited.traced_start if call.room else awaited.traced_end) - offset
            host.awaits, host.room = first + call.awaits, call.room
            # what was over before the host turned to it holds it up for no longer than the call takes
            host.until_ns = float(max(0, call.end - max(moment, start)))
            if moment < start:
                host.think_ns += host.duration_ns
            host.duration_ns = 0.0
        calls.append(host)
        returned = end if end > returned else returned
    handing = -1
    for at in range(len(calls) - 1, -1, -1):
        call = record.calls[at]
        if call.kind == LAUNCH:
            own = call.in_collective and record.collective[call.activity] >= 0
            handing = first + call.activity if own else -1
        calls[at].hands_over = handing if call.in_collective else -1
    return calls


def _add_waits(graph: Graph, rank: int, record: RankRecord, first: int) -> None:
    """Add what streams are made to wait for, from the order of the calls."""
    communicating = {
        stream for stream, kind in zip(record.stream, record.kind, strict=True) if kind == COMMUNICATION
    } - {_main_stream(record)}
    last_on: dict[int, int] = {}  # by stream that is no collective's: the last activity launched
    last_main = -1
    pending: list[int] = []  # collectives, and what other streams made of them, that nothing waited for yet
    due: list[int] = []  # what the next launched activity has to wait for
    fresh = -1  # the collective whose call was the last thing the host did
    main = _main_stream(record)
    for call in record.calls:
        if call.kind == WAIT and not call.in_collective:
            if fresh >= 0:
                due.append(fresh)
                if fresh in pending:
                    pending.remove(fresh)
            elif pending:
                due.append(pending.pop(0))
            fresh = -1
            continue
        if call.kind != LAUNCH:
            continue
        at = call.activity
        if record.collective[at] >= 0 and record.stream[at] in communicating:
            producer = last_main if last_main >= 0 else max(last_on.values(), default=-1)
            _wait_for(graph, first, at, producer)
            pending.append(at)
            fresh = at
            continue
        for producer in due:
            _wait_for(graph, first, at, producer)
        if due and record.stream[at] != main:
            pending.append(at)  # a stream of its own goes on with what came (a gradient unpacked): to be awaited too
        due = []
        fresh = -1
        last_on[record.stream[at]] = at
        if record.stream[at] == main:
            last_main = at


def _wait_for(graph: Graph, first: int, at: int, producer: int) -> None:
    """Let an activity wait for one of another stream, unless the trace shows that it did not."""
    if producer < 0 or graph.activities[first + producer].stream == graph.activities[first + at].stream:
        return
    if graph.activities[first + producer].traced_end <= graph.activities[first + at].traced_start:
        graph.after.setdefault(first + at, []).append(first + producer)


def _main_stream(record: RankRecord) -> int:
    busy: dict[int, int] = {}
    for start, end, kind, stream in zip(record.start, record.end, record.kind, record.stream, strict=True):
        if kind == COMPUTE:
            busy[stream] = busy.get(stream, 0) + end - start
    return max(busy, key=lambda stream: busy[stream]) if busy else -1


def _add_transfers(
    graph: Graph, records: Mapping[int, RankRecord], base: Mapping[int, int], offsets: Mapping[int, int]
) -> None:
    """Join the ranks' collectives; one that is not whole in the traces stays an activity of its rank alone."""
    collectives = {rank: record.collectives for rank, record in records.items()}
    row_of = {
        rank: {index: row for row, index in enumerate(record.collective) if index >= 0}
        for rank, record in records.items()
    }
    expected = set(records)
    for match in match_collectives(collectives, offsets):
        members = {rank: base[rank] + row_of[rank][index] for rank, index in match.members.items()}
        whole = match.missing is None or (match.missing == "trace" and set(members) == expected)
        wait = wait_of(match, collectives, offsets)
        if wait is not None:
            for rank, at in members.items():
                graph.activities[at].wait_ns = float(wait.ready[rank] - collectives[rank][match.members[rank]].start)
        if not whole or len(members) < 2 or (match.missing is None and wait is None):
            continue
        collective = next(iter(collectives[rank][index] for rank, index in match.members.items()))
        if collective.operation in PAIRWISE:
            _send_before_received(graph, members, collective)
        for together in _that_wait_for_each_other(graph, members, collective.operation):
            _add_transfer(graph, together, collective, match.group_size or len(members), whole=match.missing is None)


def _send_before_received(graph: Graph, members: Mapping[int, int], transfer: RankCollective) -> None:
    """Let a send begin before its partner has the data: its record does so once they have been handed to the kernel.

    Else whoever waits for a message that travels at once would seem to wait for nobody.
    """
    if len(members) != 2 or transfer.source is None or transfer.source >= len(transfer.group_ranks):
        return
    sender = transfer.group_ranks[transfer.source]
    sent = graph.activities[members[sender]] if sender in members else None
    received = next(graph.activities[at] for rank, at in members.items() if rank != sender)
    if sent is None or not received.traced_start < received.traced_end <= sent.traced_start:
        return
    if sent.traced_start - received.traced_end <= SEND_HELD_UP_NS:
        sent.traced_start = received.traced_end - 1


def _that_wait_for_each_other(
    graph: Graph, members: Mapping[int, int], operation: str | None
) -> list[Mapping[int, int]]:
    """Return the members of a collective that move their data together: all of them, in most.

    Of a broadcast or a reduce, some may be through before others come: those that end after the last one has come wait
    for it, and the rest is looked at in the same way. Else each rank's own duration stands where one has ended before
    the last came (a root that went on, or clocks that disagree).
    """
    if len(members) < 2:
        return []
    begun = max(graph.activities[at].traced_start for at in members.values())
    late = {rank: at for rank, at in members.items() if graph.activities[at].traced_end > begun}
    if len(late) == len(members):
        return [members]
    if operation not in THROUGH_MEMBERS:
        return []
    through = {rank: at for rank, at in members.items() if rank not in late}
    return [*([late] if len(late) > 1 else []), *_that_wait_for_each_other(graph, through, operation)]


def _add_transfer(
    graph: Graph, members: Mapping[int, int], collective: RankCollective, group_size: int, *, whole: bool
) -> None:
    nodes = [graph.activities[at] for at in members.values()]
    begun = max(node.traced_start for node in nodes)
    ended = min(node.traced_end for node in nodes)
    index = len(graph.transfers)
    for node in nodes:
        node.collective, node.skew_ns = index, float(node.traced_end - ended)
    graph.transfers.append(
        Transfer(
            members=dict(members),
            work_ns=float(ended - begun),
            operation=collective.operation or "unknown",
            bytes=collective.bytes,
            dtype=collective.dtype,
            group_size=group_size,
            step=next((node.step for node in nodes if node.step >= 0), -1),
            traced_ns=float(ended - begun),
            hidden=0.0,
            whole=whole,
            sparse=collective.sparse,
        )
    )


def _add_overlap(graph: Graph, rank: int) -> None:
    """Note what of a rank ran side by side: its compute beside any collective, and transfers beside its compute."""
    own = [at for stream in graph.order[rank] for at in stream]
    communication = _spans(graph, [at for at in own if graph.activities[at].kind == COMMUNICATION])
    compute_rows = [at for at in own if graph.activities[at].kind == COMPUTE]
    for at, overlap in zip(compute_rows, _covered(communication, _bounds(graph, compute_rows)), strict=True):
        graph.activities[at].overlap_ns = overlap
    mine = [one for one in graph.transfers if rank in one.members]
    begun = [max(graph.activities[at].traced_start for at in one.members.values()) for one in mine]
    ended = [min(graph.activities[at].traced_end for at in one.members.values()) for one in mine]
    windows = Intervals(np.array(begun, np.int64), np.array(ended, np.int64))
    for transfer, hidden in zip(mine, _covered(_spans(graph, compute_rows), windows), strict=True):
        transfer.hidden += hidden / transfer.traced_ns / len(transfer.members)


def _covered(disjoint: Intervals, spans: Intervals) -> list[int]:
    """Return for how many ns of each span a disjoint set covers it."""
    covered: list[int] = (covered_before(disjoint, spans.ends) - covered_before(disjoint, spans.starts)).tolist()
    return covered


def _spans(graph: Graph, rows: Sequence[int]) -> Intervals:
    return union(_bounds(graph, rows))


def _bounds(graph: Graph, rows: Sequence[int]) -> Intervals:
    return Intervals(
        np.array([graph.activities[at].traced_start for at in rows], np.int64),
        np.array([graph.activities[at].traced_end for at in rows], np.int64),
    )


def _explain_starts(graph: Graph, rank: int, record: RankRecord) -> None:
    """Find the launch latency, each activity's dispatch, and what of the trace nothing explains."""
    launch: dict[int, float] = {}
    returned: dict[int, float] = {}
    staged: dict[int, int] = {}
    # whole numbers until the difference is small: times since 1970 as floats are 256 ns apart
    clock = int(graph.begins[rank]) - record.calls[0].start if record.calls else 0
    for host, call in zip(graph.calls[rank], record.calls, strict=True):
        if host.launches >= 0:
            launch[host.launches] = float(call.start + clock)
            returned[host.launches] = float(call.end + clock)
            if _is_staged(graph.activities[host.launches]):
                staged[host.launches] = call.end - call.start
    graph.latency[rank] = _latency(graph, rank, launch)
    if record.activity == "gpu":
        keep_turns(graph, rank, launch)
    ends = Ends(graph, rank)
    edges = graph.edges[rank]
    computing = _spans(graph, [at for _, at in ends.ends if graph.activities[at].kind == COMPUTE])
    unexplained = 0.0
    held_up: list[float] = []  # dispatches of what its stream or an event held up
    launched_late: list[Activity] = []  # what nothing but its launch did
    for stream in graph.order[rank]:
        before = -1
        for at in stream:
            node = graph.activities[at]
            free = _free(graph, at, before, launch.get(at), graph.latency[rank])
            if free is None:
                node.not_before = float(node.traced_start)  # launched before the trace began: it begins when it did
                before = at
                continue
            gap = node.traced_start - free
            dispatch = LONGEST_DISPATCH_NS + staged.get(at, 0)
            by_launch = free == launch.get(at, -1.0) + graph.latency[rank]
            if by_launch and node.traced_start <= returned[at] + graph.latency[rank]:
                dispatch = max(dispatch, round(gap))  # its host was still in the call, however long that took
            if gap > dispatch:
                helper = ends.right_before(at, before, free, LONGEST_DISPATCH_NS)
                if helper >= 0:
                    graph.after.setdefault(at, []).append(helper)
                    gap = node.traced_start - graph.activities[helper].traced_end
            # a run loop's thread comes when the machine lets it: all of that is its dispatch
            longest = gap if record.activity == "cpu" and node.kind == COMMUNICATION else dispatch
            if record.activity == "gpu" and gap > longest and had_no_room(node, gap - longest, computing):
                longest = gap
            if gap > longest and node.step < 0 and node.traced_start < edges[0]:
                node.not_before = float(node.traced_start)  # what it waited for was launched before the trace began
                before = at
                continue
            node.dispatch_ns = float(min(max(gap, 0.0), max(longest, 0.0)))
            if by_launch:
                launched_late.append(node)
                graph.awaited_launch.add(at)
            else:
                held_up.append(node.dispatch_ns)
            if gap > longest and node.kind != COMMUNICATION:
                left, right = max(node.traced_start - gap + dispatch, edges[0]), node.traced_start
                node.beyond_ns = float(max(0, right - left))
                unexplained += node.beyond_ns
            before = at
    graph.unexplained_ns[rank] = unexplained
    if record.activity == "gpu":
        # what a slow launch took is not taken once more where the queue is full
        typical = median(held_up, _QUEUED_DISPATCH_NS)
        for node in launched_late:
            node.late_ns = max(0.0, node.dispatch_ns - typical)
            node.dispatch_ns -= node.late_ns


def _is_staged(node: Activity) -> bool:
    """Tell whether the host copies what a copy is to move, before it begins: pages that no device reads."""
    return node.kind == COPY and "Pageable -> Device" in node.name


def _latency(graph: Graph, rank: int, launch: Mapping[int, float]) -> float:
    """Return the least time from launch to begin that is not a fluke of the clocks: the first percentile.

    Where the device is always behind, no launch shows what launching takes by itself: then a typical figure stands.
    """
    waits = [graph.activities[at].traced_start - instant for at, instant in launch.items()]
    return min(max(0.0, float(np.percentile(waits, 1))), LONGEST_LATENCY_NS) if waits else 0.0


def _free(graph: Graph, at: int, before: int, launched: float | None, latency: float) -> float | None:
    """Return when nothing that is known held an activity up any more; None where nothing is known."""
    free = float(graph.activities[before].traced_end) if before >= 0 else None
    if launched is not None and (free is None or launched + latency > free):
        free = launched + latency
    for other in graph.after.get(at, ()):
        ended = float(graph.activities[other].traced_end)
        if free is None or ended > free:
            free = ended
    return free
