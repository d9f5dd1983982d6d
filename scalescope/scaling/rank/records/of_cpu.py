"""What the trace of a rank that computes on a CPU says for a replay, where collectives run on threads of their own."""

from bisect import bisect_left
from collections.abc import Collection, Sequence

import numpy as np

from scalescope.records.operations import FROM_ROOT, TO_ROOT
from scalescope.scaling.rank.annotations.loading import waits_for_workers
from scalescope.scaling.rank.annotations.phases import find_phases
from scalescope.scaling.rank.annotations.sharding import tells_sharding
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.rank.cpu import WOKEN_NS, WOKEN_SHARE, CpuTimeline, host_layers
from scalescope.scaling.rank.recomputed import inside_of
from scalescope.scaling.rank.recorded import count_recorded
from scalescope.scaling.rank.records.backward_passes import DDP_FORWARD
from scalescope.scaling.rank.records.callers import NO_CODE, OwnCode
from scalescope.scaling.rank.records.inputs import inputs_by_activity
from scalescope.scaling.rank.records.long_way import LongWay
from scalescope.scaling.rank.records.new_gradients import new_gradients
from scalescope.scaling.rank.records.own_code.by_hand import loops_by_hand
from scalescope.scaling.rank.records.own_code.normalising import normalising
from scalescope.scaling.rank.records.own_code.optimizers import single_operations
from scalescope.scaling.rank.records.own_code.unused_forward import unused_forward
from scalescope.scaling.rank.records.precisions import precisions_of
from scalescope.scaling.rank.records.record import (
    LAUNCH,
    SYNC,
    GradientReady,
    RankRecord,
    RecordedCall,
    call_times,
    first_steps,
    gradient_rows,
    kept,
    loads_of,
    mean_step_ns,
    take_code,
    within,
)
from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE
from scalescope.scaling.trace.families import HANDOVER_OPS
from scalescope.scaling.trace.intervals import Intervals, Ints, union
from scalescope.scaling.trace.trace import Trace

#: On CPUs: a thread that does nothing for so long waits, …
_WAITS_NS = 150_000
#: … for the one collective that runs for so much of that.
_MOSTLY = 0.8

#: Collectives of which one rank is the root.
_ROOTED = FROM_ROOT | TO_ROOT


def record_host(trace: Trace, timeline: CpuTimeline, code: OwnCode = NO_CODE) -> RankRecord:
    """Return what a rank without a device says: operators of the loop's thread are activities that the host awaits.

    Operators that hand collectives over launch them; what the run loops do is on streams of its own, a thread each.
    DDP awaits its buckets once the last one is handed over. An operator that hands a collective over or waits for one
    in its midst, as a tensor's own backward pass may, is two activities, and so is one that compiles: what lies between
    is no compute.
    """
    base = trace.header.base_ns
    until, count = kept(timeline.windows, timeline.operators.starts, timeline.whole)
    ops = [one for one in _computing(trace, timeline) if one[0] < until]
    edges, numbers = first_steps(timeline.windows)
    collectives = [one for one in timeline.collectives if one.start < until]
    rows: list[tuple[int, int, int, int, str, int]] = [(start, end, COMPUTE, 0, name, -1) for start, end, name in ops]
    rows += [
        (one.start, end, COMMUNICATION, 1 + one.stream, one.operation or "collective", index)
        for index, (one, end) in enumerate(zip(collectives, _let_go(collectives, ops), strict=True))
    ]
    rows.sort(key=lambda row: row[:2])
    bounds = np.array(edges, np.int64)
    result = RankRecord(
        rank=trace.header.distributed.rank if trace.header.distributed.rank >= 0 else None,
        host=trace.header.host or trace.header.own.host,
        device=None,
        activity="cpu",
        count=count,
        start=[row[0] for row in rows],
        end=[row[1] for row in rows],
        kind=[row[2] for row in rows],
        stream=[row[3] for row in rows],
        step=_steps_of(np.array([row[0] for row in rows], np.int64), bounds, numbers),
        name=[row[4] for row in rows],
        collective=[row[5] for row in rows],
        collectives=collectives,
        calls=[],
        data=union(timeline.data),
        from_workers=waits_for_workers(trace, timeline.steps),
        edges=edges,
        steps=numbers,
        mean_step_ns=mean_step_ns(timeline.windows),
        cut_communication=timeline.cut_communication,
    )
    if rows and edges:
        result.layers = within(host_layers(timeline), edges)
        result.phases = find_phases(trace, timeline.steps, edges)
        begun = new_gradients(trace)
        result.new_gradients = begun[(begun >= edges[0]) & (begun < edges[-1])].tolist()
        result.recomputed = inside_of(timeline.recomputed, result.start, result.kind)
        result.unused = unused_forward(trace, result, timeline.thread)
    _host_calls(trace, result, base, until)
    take_code(result, code, timeline.thread)
    if rows and edges:
        result.long_way = LongWay(single_operations(result), loops_by_hand(result), normalising(result))
    thread = timeline.thread
    result.precisions = precisions_of(trace, result, thread)
    inside = Intervals(np.array(result.start, np.int64), np.array(result.end, np.int64))
    computes = np.array(result.kind, np.int64) == COMPUTE
    starts, ends = call_times(result)
    result.recorded = count_recorded(trace, starts, ends, {thread}, inside, computes)
    result.own, result.multiplied = trace.header.own, trace.multiplied
    result.loads = loads_of(trace, timeline.steps)
    result.sharded = tells_sharding(trace.names)
    result.inputs = inputs_by_activity(trace, result.start, result.end, result.kind)
    return result


def _computing(trace: Trace, timeline: CpuTimeline) -> list[tuple[int, int, str]]:
    """Return the stretches of the loop's thread in which operators compute, with their names, ascending by start."""
    names = [trace.names[name] for name in timeline.operator_name.tolist()]
    spans = zip(timeline.operators.starts.tolist(), timeline.operators.ends.tolist(), names, strict=True)
    left, right = timeline.between.starts.tolist(), timeline.between.ends.tolist()
    found: list[tuple[int, int, str]] = []
    at = 0
    for start, end, name in spans:
        if name.startswith(HANDOVER_OPS):
            continue
        while at < len(left) and right[at] <= start:
            at += 1
        begin, inside = start, at
        while inside < len(left) and left[inside] < end:
            if left[inside] > begin:
                found.append((begin, left[inside], name))
            begin = right[inside]
            inside += 1
        if begin < end or begin == start:
            found.append((begin, end, name))
    return found


def _let_go(collectives: Sequence[RankCollective], ops: Sequence[tuple[int, int, str]]) -> list[int]:
    """Return when each collective let the loop's thread go on that waited for it; of the others their ends.

    A run loop that shares its core with the thread that it wakes gets to write down the end only later.
    """
    idle: list[tuple[int, int]] = []
    busy_until = ops[0][1] if ops else 0
    for start, end, _ in ops:
        if start - busy_until >= _WAITS_NS:
            idle.append((busy_until, start))
        busy_until = max(busy_until, end)
    ended = sorted(one.end for one in collectives)
    found = []
    for one in collectives:
        length = one.end - one.start
        begin, end = max(idle, key=lambda gap: min(gap[1], one.end) - max(gap[0], one.start), default=(0, 0))
        alone = bisect_left(ended, begin) == bisect_left(ended, end)  # no other one ended then
        if (
            alone
            and (end - max(begin, one.start) >= _MOSTLY * length or _begins_with_one(begin, end, collectives))
            and (0 < one.end - end <= max(WOKEN_NS, WOKEN_SHARE * length))
            # nor did the thread wait for one that was in flight, too, and is written down before
            and not any(other.start < end <= other.end < one.end for other in collectives)
        ):
            found.append(end)
        else:
            found.append(one.end)
    return found


def _begins_with_one(begin: int, end: int, collectives: Sequence[RankCollective]) -> bool:
    """Tell whether a thread has just handed a collective over where it goes idle: it has nothing to do but to wait."""
    return any(begin - _WAITS_NS <= one.start <= min(begin + _WAITS_NS, end) for one in collectives)


def _steps_of(instants: Ints, edges: Ints, numbers: Sequence[int]) -> list[int]:
    """Return the number of the step in which each instant lies; -1 outside of all."""
    at = np.searchsorted(edges, instants, side="right")
    numbered: list[int] = np.array([-1, *numbers, -1], np.int64)[np.minimum(at, len(numbers) + 1)].tolist()
    return numbered


def _host_calls(trace: Trace, record: RankRecord, base: int, until: float) -> None:
    handed = [
        (int(trace.operators.start[row]) + base, int(trace.operators.end[row]) + base)
        for row in trace.operator_communication
        if trace.names[trace.operators.name[row]].startswith("c10d::") and trace.operators.start[row] + base < until
    ]
    handed.sort()
    waiting = [at for at, kind in enumerate(record.kind) if kind == COMMUNICATION]
    calls: list[RecordedCall] = []
    handover_of: dict[int, int] = {}
    for start, end in handed:
        # run loops take collectives up in the order in which they are handed over
        taken = next((at for at in waiting if record.start[at] >= start), None)
        if taken is not None:
            waiting.remove(taken)
            handover_of[taken] = start
            # what runs in the very call that hands it over lasts as long as that; the call itself takes nothing
            end = start if start == record.start[taken] else max(start, end)
            calls.append(RecordedCall(start, end, LAUNCH, 0, taken, in_collective=True))
    for at, kind in enumerate(record.kind):
        if kind == COMPUTE:
            calls.append(RecordedCall(record.start[at], record.end[at], LAUNCH, 0, at, awaits=at))
    filled = sorted(int(trace.operators.start[row]) + base for row in trace.gradients)
    calls += _awaited_collectives(record, handover_of, _buckets(record, handover_of, filled))
    calls.sort(key=lambda call: (call.start, call.end))
    record.calls = calls
    launches = [at for at, call in enumerate(calls) if call.kind == LAUNCH and not call.in_collective]
    starts = np.array([calls[at].start for at in launches], np.int64)
    for row in gradient_rows(trace, record):
        # the operator itself, or the one that it stands in
        at = int(np.searchsorted(starts, int(trace.operators.start[row]) + base, side="right")) - 1
        if at >= 0:
            gradient = trace.gradients[row]
            record.gradients.append(GradientReady(launches[at], gradient.elements, gradient.element_bytes))


def _buckets(record: RankRecord, handover_of: dict[int, int], filled: Sequence[int]) -> set[int]:
    """Return the collectives that are DDP's buckets: those into which a gradient has gone since the one before.

    A loop that reduces something of its own besides, as norms or losses are, waits for that where it does so. What DDP
    broadcasts has a root, told or not; its buckets have none.
    """
    found = set()
    since = -1
    for at in sorted(handover_of, key=handover_of.__getitem__):
        if record.collectives[record.collective[at]].operation in _ROOTED:
            continue
        if bisect_left(filled, handover_of[at]) > bisect_left(filled, since):
            found.add(at)
        since = handover_of[at]
    return found


def _awaited_collectives(
    record: RankRecord, handover_of: dict[int, int], buckets: Collection[int]
) -> list[RecordedCall]:
    """Return where the loop's thread awaits the collectives: before the first operator that needs what they bring.

    DDP awaits all of a backward pass's buckets once the last one is handed over, but the buffers that it broadcasts
    before a forward pass at once. Else that is the first operator after an idle stretch in which the collective
    ended. A thread that hands others over meanwhile does not wait yet: an optimiser that shares its states
    broadcasts what it has updated parameter by parameter, and awaits them all in the end.
    """
    compute = [at for at, kind in enumerate(record.kind) if kind == COMPUTE]
    before = dict(zip(compute[1:], compute[:-1], strict=True))
    bounds = np.array(record.edges, np.int64)
    # by step and forward passes begun by then: when the last bucket of the backward pass behind these is handed over
    last: dict[tuple[int, int], int] = {}
    step_of = dict(
        zip(handover_of, _steps_of(np.array([*handover_of.values()], np.int64), bounds, record.steps), strict=True)
    )
    forwards = [begun for begun, _, name in record.phases if name == DDP_FORWARD]
    pass_of = {at: (step_of[at], bisect_left(forwards, handover_of[at])) for at in buckets}
    for at, one in pass_of.items():
        last[one] = max(handover_of[at], last.get(one, 0))
    starts = np.array([record.start[at] for at in compute], np.int64)
    handed = sorted(handover_of.values())
    calls = []
    for at in sorted(handover_of, key=lambda at: record.end[at]):
        end, handed_over = record.end[at], handover_of[at]
        bucket = at in buckets
        earliest = max(end, last[pass_of[at]] if bucket else handed_over)
        after = (compute[index] for index in range(int(np.searchsorted(starts, earliest)), len(compute)))
        user = next((one for one in after if bucket or record.end[before.get(one, one)] <= end), None)
        if user is None:
            continue
        busy = handed[bisect_left(handed, end) - 1]  # with the last one handed over before it ended
        idle = max(record.end[before[user]] if user in before else end, busy + 1 if busy > handed_over else handed_over)
        # it ended while the thread had nothing else to do, which then waited; else it was there already
        begin, back = (idle, end) if idle < end else (record.start[user] - 1, record.start[user] - 1)
        # what runs before it on its run loop was handed over, too, when it ended
        loop = [other for other in handover_of if record.stream[other] == record.stream[at]]
        behind = max(handover_of[other] for other in loop if record.start[other] <= record.start[at])
        calls.append(RecordedCall(max(begin, behind + 1), max(back, behind + 1), SYNC, 0, awaits=at))
    return calls
