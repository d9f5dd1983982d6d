"""What the trace of a rank with a device says for a replay."""

from bisect import bisect_right

import numpy as np

from scalescope.scaling.rank.annotations.loading import (
    copies_from_host,
    copies_to_host,
    data_loading,
    waits_for_workers,
)
from scalescope.scaling.rank.annotations.phases import find_phases
from scalescope.scaling.rank.annotations.sharding import tells_sharding
from scalescope.scaling.rank.communication import communication_calls
from scalescope.scaling.rank.partition import device_layers, device_windows
from scalescope.scaling.rank.recomputed import find_recomputed, inside_of
from scalescope.scaling.rank.recorded import count_recorded
from scalescope.scaling.rank.records.callers import NO_CODE, OwnCode
from scalescope.scaling.rank.records.element_reads import elements_before
from scalescope.scaling.rank.records.new_gradients import new_gradients
from scalescope.scaling.rank.records.own_code.by_operators import add_long_way
from scalescope.scaling.rank.records.record import (
    LAUNCH,
    SYNC,
    WAIT,
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
from scalescope.scaling.rank.step_sources.optimizer import optimizer_spans
from scalescope.scaling.rank.timeline import COMMUNICATION, COPY, Timeline
from scalescope.scaling.trace.intervals import Intervals, union
from scalescope.scaling.trace.trace import Trace

#: Launches that have not begun on the device: with so many outstanding, a launch waits for room in the queue.
_QUEUE_IS_FULL = 512
#: A launch that takes no longer has not waited, ns.
_QUICK_NS = 20_000
#: A call that copies out of pageable memory returns so near the copy's end, ns: up to 12 µs before it (40 MB, H200).
_STAGED_NS = 20_000
_SYNCHRONISING = ("DeviceSynchronize", "StreamSynchronize", "EventSynchronize")


def record_device(trace: Trace, timeline: Timeline, code: OwnCode = NO_CODE) -> RankRecord:
    """Return what a rank with a device says for a replay."""
    windows = device_windows(timeline)
    edges, first = first_steps(windows)
    until, count = kept(windows, timeline.start, timeline.whole)
    rows = int((timeline.start < until).sum())  # they ascend by start
    order = np.argsort(trace.activities.start, kind="stable")[:rows]  # the timeline's own order
    numbers = [*timeline.steps.numbers.tolist(), -1]
    communicates = timeline.kind[:rows] == COMMUNICATION
    collectives = timeline.collectives[: int(communicates.sum())]
    collective = np.full(rows, -1, np.int64)
    collective[communicates] = np.arange(len(collectives))
    result = RankRecord(
        rank=trace.header.distributed.rank if trace.header.distributed.rank >= 0 else None,
        host=trace.header.host or trace.header.own.host,
        device=next((device.name for device in trace.header.devices), None),
        activity="gpu",
        count=count,
        start=timeline.start[:rows].tolist(),
        end=timeline.end[:rows].tolist(),
        kind=timeline.kind[:rows].tolist(),
        stream=timeline.stream[:rows].tolist(),
        step=[numbers[step] for step in timeline.step[:rows].tolist()],
        name=[trace.names[name] for name in timeline.name[:rows].tolist()],
        collective=collective.tolist(),
        collectives=collectives,
        calls=_calls(trace, trace.activities.correlation[order].tolist(), until),
        data=union(data_loading(trace, timeline.steps)),
        from_workers=waits_for_workers(trace, timeline.steps),
        edges=edges,
        steps=first,
        blocks=trace.activities.blocks[order].tolist(),
        mean_step_ns=mean_step_ns(windows),
    )
    if rows:
        result.layers = within(device_layers(timeline, windows, result.data), result.edges)
        result.phases = find_phases(trace, timeline.steps, result.edges)
        made = new_gradients(trace)
        result.new_gradients = made[made < until].tolist()
        result.recomputed = _recomputed(trace, result)
        add_long_way(trace, timeline.steps, result)
    take_code(result, code)
    _find_awaited(result)
    _add_gradients(trace, result)
    threads = {call.thread for call in result.calls if call.kind == LAUNCH}
    starts, ends = call_times(result)
    result.recorded = count_recorded(trace, starts, ends, threads)
    begun, over = (times + trace.header.base_ns for times in optimizer_spans(trace))
    optimizing = union(Intervals(begun, over))
    result.elements = elements_before(trace, starts, ends, threads, result.data, optimizing)
    result.own, result.multiplied = trace.header.own, trace.multiplied
    result.loads = loads_of(trace, timeline.steps)
    result.sharded = tells_sharding(trace.names)
    return result


def _calls(trace: Trace, correlation: list[int], until: float) -> list[RecordedCall]:
    """Return the calls, up to an instant, that launch activities, make streams wait, or wait themselves."""
    runtime, base = trace.runtime, trace.header.base_ns
    launched = {number: row for row, number in enumerate(correlation) if number > 0}
    waits = np.array(["StreamWaitEvent" in name for name in trace.names], bool)
    syncs = np.array([any(word in name for word in _SYNCHRONISING) for name in trace.names], bool)
    collectives = communication_calls(trace)
    by_thread: dict[int, tuple[list[int], list[int]]] = {}
    for thread in {call.thread for call in collectives}:
        own = [call for call in collectives if call.thread == thread]
        by_thread[thread] = [call.start for call in own], [call.end for call in own]
    found: list[RecordedCall] = []
    seen: set[int] = set()
    rows = np.argsort(runtime.start, kind="stable")
    rows = rows[: int(np.searchsorted(runtime.start[rows], until - base))]
    columns = (runtime.start, runtime.end, runtime.name, runtime.correlation, runtime.thread)
    for start, end, name, number, thread in zip(*(column[rows].tolist() for column in columns), strict=True):
        activity = launched.get(number, -1)
        if activity >= 0 and number not in seen:
            seen.add(number)
            kind = LAUNCH
        elif waits[name]:
            kind = WAIT
        elif syncs[name]:
            kind = SYNC
        else:
            continue
        inside = False
        if thread in by_thread:
            starts, ends = by_thread[thread]
            at = bisect_right(starts, start) - 1
            inside = at >= 0 and start <= ends[at]
        found.append(
            RecordedCall(
                start + base, end + base, kind, thread, activity if kind == LAUNCH else -1, in_collective=inside
            )
        )
    return found


def _recomputed(trace: Trace, record: RankRecord) -> list[int]:
    """Return what a device runs of the forward pass once more, for its backward pass."""
    by_thread = find_recomputed(trace).by_thread(trace)
    found: list[int] = []
    for thread, spans in by_thread.items():
        own = [call for call in record.calls if call.kind == LAUNCH and call.thread == thread]
        kinds = [record.kind[call.activity] for call in own]
        found += [own[at].activity for at in inside_of(spans, [call.start for call in own], kinds)]
    return sorted(found)


def _find_awaited(record: RankRecord) -> None:
    """Say which activity let a call return that waited: for the device's end, or for room in its queue."""
    ends = np.array(record.end, np.int64)
    by_end = np.argsort(ends, kind="stable")
    sorted_ends = ends[by_end].tolist()
    unrecorded = len(record.start) - sum(call.kind == LAUNCH for call in record.calls)
    launches = unrecorded  # those launched before the window
    launched_by = {call.activity: index for index, call in enumerate(record.calls) if call.kind == LAUNCH}
    for index, call in enumerate(record.calls):
        if call.kind == LAUNCH:
            launches += 1
            if call.end - call.start < _QUICK_NS:
                continue
            begun = bisect_right(record.start, call.end)
            if launches - begun >= _QUEUE_IS_FULL and begun and record.start[begun - 1] > call.start:
                call.awaits, call.room = begun - 1, True
            elif _returns_with_copy(record, call):
                call.awaits = call.activity
        elif call.kind == SYNC:
            at = bisect_right(sorted_ends, call.end) - 1
            if at >= 0 and sorted_ends[at] > call.start:
                call.awaits = int(by_end[at])
        if call.awaits not in (-1, call.activity) and launched_by.get(call.awaits, -1) >= index:
            call.awaits, call.room = -1, False  # another thread launched it meanwhile: it cannot be what was awaited


def _returns_with_copy(record: RankRecord, call: RecordedCall) -> bool:
    """Tell whether a call returns once its copy is through, as one into or out of pageable memory does.

    Out of it the host has nothing left to do once the last piece is on its way. Either way the copy waits for what the
    stream has to do before, and the host with it, for another rank's late host even: that is no time of its own.
    """
    at, over_ns = call.activity, call.end - record.end[call.activity]
    if record.kind[at] != COPY:
        return False
    if copies_to_host(record.name[at]):
        return over_ns >= 0
    # one out of pinned memory, which the host does not wait for, may be over as soon where the device is idle
    told = record.end[at] - record.start[at] > _STAGED_NS or "Pageable" in record.name[at]
    return copies_from_host(record.name[at]) and "Pinned" not in record.name[at] and told and abs(over_ns) <= _STAGED_NS


def _add_gradients(trace: Trace, record: RankRecord) -> None:
    """Note which calls put which gradients into buckets, in order."""
    if not trace.gradients:
        return
    base = trace.header.base_ns
    starts = np.array([call.start for call in record.calls], np.int64)
    for row in gradient_rows(trace, record):
        left, right = int(trace.operators.start[row]) + base, int(trace.operators.end[row]) + base
        thread = int(trace.operators.thread[row])
        for at in range(int(np.searchsorted(starts, left)), int(np.searchsorted(starts, right, side="right"))):
            call = record.calls[at]
            if call.kind == LAUNCH and call.thread == thread:
                gradient = trace.gradients[row]
                record.gradients.append(GradientReady(at, gradient.elements, gradient.element_bytes))
                break
