"""What one rank's trace says for a replay: its activities, and the host calls that launch, order and await them."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from scalescope.records.operations import FROM_ROOT, TO_ROOT
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.rank.communication import communication_calls
from scalescope.scaling.rank.cpu import WOKEN_NS, WOKEN_SHARE, CpuTimeline, host_layers
from scalescope.scaling.rank.loading import copies_to_host, data_loading, waits_for_workers
from scalescope.scaling.rank.partition import NO_LAYERS, Layers, Windows, device_layers, device_windows
from scalescope.scaling.rank.phases import find_phases
from scalescope.scaling.rank.recorded import Recorded, count_recorded
from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE, COPY, Timeline
from scalescope.scaling.trace.families import HANDOVER_OPS
from scalescope.scaling.trace.header import OwnMetadata
from scalescope.scaling.trace.intervals import EMPTY, Intervals, Ints, clip, covered_before, union
from scalescope.scaling.trace.trace import Trace

#: What a host call does: it launches an activity, makes a stream wait for others, or waits itself.
LAUNCH, WAIT, SYNC = 0, 1, 2

#: More ranks are not replayed: those that come last most often, and as many others as fit, stand for all.
MOST_RANKS = 8

#: Of a trace's steps, the first so many are replayed: more tell little more, and each change costs a run through them.
MOST_STEPS = 8
#: More activities, of all ranks, are not replayed: that takes too long.
MOST_ACTIVITIES = 300_000

#: Launches that have not begun on the device: with so many outstanding, a launch waits for room in the queue.
_QUEUE_IS_FULL = 512
#: A launch that takes no longer has not waited, ns.
_QUICK_NS = 20_000

#: On CPUs: a thread that does nothing for so long waits, …
_WAITS_NS = 150_000
#: … for the one collective that runs for so much of that.
_MOSTLY = 0.8

#: Collectives of which one rank is the root.
_ROOTED = FROM_ROOT | TO_ROOT

_SYNCHRONISING = ("DeviceSynchronize", "StreamSynchronize", "EventSynchronize")


@dataclass(slots=True)
class RecordedCall:
    """One host call. Times are absolute ns on the rank's clock."""

    start: int
    end: int
    kind: int  # LAUNCH, WAIT or SYNC
    thread: int
    activity: int = -1  # that it launches
    awaits: int = -1  # the activity whose end (or, with `room`, begin) lets it return; -1: it returns by itself
    room: bool = False  # a launch that waited for room in the device's queue
    in_collective: bool = False  # one of the calls by which a collective is handed over


@dataclass(slots=True)
class GradientReady:
    """One parameter's gradient put into its bucket: launched by the call at this index of the calls."""

    call: int
    elements: int
    element_bytes: int


@dataclass(slots=True)
class RankRecord:
    """One rank's activities ascending by start, and its calls ascending by start. Times are absolute ns."""

    rank: int | None
    host: str
    device: str | None
    activity: str  # "gpu" | "cpu"
    count: int  # of activities in its first MOST_STEPS steps; where that is too many to replay, the lists are empty
    start: list[int]
    end: list[int]
    kind: list[int]  # timeline.COMPUTE, COMMUNICATION or COPY
    stream: list[int]
    step: list[int]  # the ProfilerStep's number, -1 for none
    name: list[str]
    collective: list[int]  # index into `collectives`, -1 for none
    collectives: list[RankCollective]
    calls: list[RecordedCall]
    data: Intervals  # when the host loads data
    edges: list[int]  # of the device's steps
    steps: list[int]  # their numbers
    mean_step_ns: float = 0.0  # of all the window's steps, of which `edges` has the first ones
    gradients: list[GradientReady] = field(default_factory=list)
    recorded: Recorded | None = None  # what recording was charged with on the way
    own: OwnMetadata = field(default_factory=OwnMetadata)  # what the trace says of its window and of recording's cost
    layers: Layers = NO_LAYERS  # what the steps are shared out among
    multiplied: dict[str, tuple[int, int]] = field(default_factory=dict)  # see Trace
    blocks: list[int] = field(default_factory=list)  # by activity: of a kernel's grid, 0 where that is not told
    from_workers: Intervals = EMPTY  # of `data`, when the host waits for batches of worker processes
    cut_communication: bool = False  # see CpuTimeline
    phases: list[tuple[int, int, str]] = field(default_factory=list)  # what the loop's thread says it does, ascending


def _kept(windows: Windows, starts: Ints, whole: int) -> tuple[float, int]:
    """Return the instant from which on nothing is kept, since no effect precedes its cause, and how much begins before.

    Of more than can be replayed nothing is kept, and nothing of a step that is not among the `whole` ones.
    """
    is_all = len(windows) <= MOST_STEPS and whole < 0
    until = math.inf if is_all else int(windows.edges[: MOST_STEPS + 1][-1])
    count = int((starts < until).sum())
    return (until, count) if count <= MOST_ACTIVITIES else (-math.inf, count)


def _mean_step_ns(windows: Windows) -> float:
    return float(windows.edges[-1] - windows.edges[0]) / len(windows) if len(windows) else 0.0


def record_device(trace: Trace, timeline: Timeline) -> RankRecord:
    """Return what a rank with a device says for a replay."""
    windows = device_windows(timeline)
    until, count = _kept(windows, timeline.start, timeline.whole)
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
        edges=windows.edges[: MOST_STEPS + 1].tolist(),
        steps=windows.numbers[:MOST_STEPS],
        blocks=trace.activities.blocks[order].tolist(),
        mean_step_ns=_mean_step_ns(windows),
    )
    if rows:
        result.layers = within(device_layers(timeline, windows, result.data), result.edges)
        result.phases = find_phases(trace, timeline.steps, result.edges)
    _find_awaited(result)
    _add_gradients(trace, result)
    threads = {call.thread for call in result.calls if call.kind == LAUNCH}
    starts, ends = _call_times(result)
    result.recorded = count_recorded(trace, starts, ends, threads)
    result.own, result.multiplied = trace.header.own, trace.multiplied
    return result


def within(layers: Layers, edges: Sequence[int]) -> Layers:
    """Return what lies between the first and the last edge."""
    return Layers(*(clip(layer, edges[0], edges[-1]) for layer in layers))


def _call_times(record: RankRecord) -> tuple[Ints, Ints]:
    calls = record.calls
    return np.array([call.start for call in calls], np.int64), np.array([call.end for call in calls], np.int64)


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
            elif record.end[call.activity] <= call.end and _is_copied_to_host(record, call.activity):
                call.awaits = call.activity  # into pageable memory: the call returns when the copy is through
        elif call.kind == SYNC:
            at = bisect_right(sorted_ends, call.end) - 1
            if at >= 0 and sorted_ends[at] > call.start:
                call.awaits = int(by_end[at])
        if call.awaits not in (-1, call.activity) and launched_by.get(call.awaits, -1) >= index:
            call.awaits, call.room = -1, False  # another thread launched it meanwhile: it cannot be what was awaited


def _is_copied_to_host(record: RankRecord, at: int) -> bool:
    return record.kind[at] == COPY and copies_to_host(record.name[at])


def _gradient_rows(trace: Trace, record: RankRecord) -> list[int]:
    """Return the operators that put gradients into buckets, in order, as far as the record goes."""
    until = record.calls[-1].end - trace.header.base_ns if record.calls else 0
    began = {row: int(trace.operators.start[row]) for row in trace.gradients}
    return sorted((row for row, start in began.items() if start <= until), key=began.__getitem__)


def _add_gradients(trace: Trace, record: RankRecord) -> None:
    """Note which calls put which gradients into buckets, in order."""
    if not trace.gradients:
        return
    base = trace.header.base_ns
    starts = np.array([call.start for call in record.calls], np.int64)
    for row in _gradient_rows(trace, record):
        left, right = int(trace.operators.start[row]) + base, int(trace.operators.end[row]) + base
        thread = int(trace.operators.thread[row])
        for at in range(int(np.searchsorted(starts, left)), int(np.searchsorted(starts, right, side="right"))):
            call = record.calls[at]
            if call.kind == LAUNCH and call.thread == thread:
                gradient = trace.gradients[row]
                record.gradients.append(GradientReady(at, gradient.elements, gradient.element_bytes))
                break


def record_host(trace: Trace, timeline: CpuTimeline) -> RankRecord:
    """Return what a rank without a device says: operators of the loop's thread are activities that the host awaits.

    Operators that hand collectives over launch them; what the run loops do is on streams of its own, a thread each.
    DDP awaits its buckets once the last one is handed over. An operator that hands a collective over or waits for one
    in its midst, as a tensor's own backward pass may, is two activities, and so is one that compiles: what lies between
    is no compute.
    """
    base = trace.header.base_ns
    until, count = _kept(timeline.windows, timeline.operators.starts, timeline.whole)
    ops = [one for one in _computing(trace, timeline) if one[0] < until]
    edges = timeline.windows.edges[: MOST_STEPS + 1].tolist()
    numbers = timeline.windows.numbers[:MOST_STEPS]
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
        step=[_step_of(row[0], bounds, numbers) for row in rows],
        name=[row[4] for row in rows],
        collective=[row[5] for row in rows],
        collectives=collectives,
        calls=[],
        data=union(timeline.data),
        from_workers=waits_for_workers(trace, timeline.steps),
        edges=edges,
        steps=numbers,
        mean_step_ns=_mean_step_ns(timeline.windows),
        cut_communication=timeline.cut_communication,
    )
    if rows and edges:
        result.layers = within(host_layers(timeline), edges)
        result.phases = find_phases(trace, timeline.steps, edges)
    _host_calls(trace, result, base, until)
    thread = timeline.thread
    inside = Intervals(np.array(result.start, np.int64), np.array(result.end, np.int64))
    computes = np.array(result.kind, np.int64) == COMPUTE
    starts, ends = _call_times(result)
    result.recorded = count_recorded(trace, starts, ends, {thread}, inside, computes)
    result.own, result.multiplied = trace.header.own, trace.multiplied
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
            and end - max(begin, one.start) >= _MOSTLY * length
            and (0 < one.end - end <= max(WOKEN_NS, WOKEN_SHARE * length))
            # nor did the thread wait for one that was in flight, too, and is written down before
            and not any(other.start < end <= other.end < one.end for other in collectives)
        ):
            found.append(end)
        else:
            found.append(one.end)
    return found


def _step_of(instant: int, edges: "np.ndarray", numbers: list[int]) -> int:
    at = int(np.searchsorted(edges, instant, side="right")) - 1
    return numbers[at] if 0 <= at < len(numbers) else -1


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
    calls += _awaited_collectives(record, handover_of, bool(trace.gradients))
    calls.sort(key=lambda call: (call.start, call.end))
    record.calls = calls
    launches = [at for at, call in enumerate(calls) if call.kind == LAUNCH and not call.in_collective]
    starts = np.array([calls[at].start for at in launches], np.int64)
    for row in _gradient_rows(trace, record):
        # the operator itself, or the one that it stands in
        at = int(np.searchsorted(starts, int(trace.operators.start[row]) + base, side="right")) - 1
        if at >= 0:
            gradient = trace.gradients[row]
            record.gradients.append(GradientReady(launches[at], gradient.elements, gradient.element_bytes))


def _awaited_collectives(record: RankRecord, handover_of: dict[int, int], ddp: bool) -> list[RecordedCall]:
    """Return where the loop's thread awaits the collectives: before the first operator that needs what they bring.

    DDP awaits all of a step's buckets once the last one is handed over, but the buffers that it broadcasts before a
    forward pass at once. Else that is the first operator after an idle stretch in which the collective ended. A thread
    that hands others over meanwhile does not wait yet: an optimiser that shares its states broadcasts what it has
    updated parameter by parameter, and awaits them all in the end.
    """
    compute = [at for at, kind in enumerate(record.kind) if kind == COMPUTE]
    before = dict(zip(compute[1:], compute[:-1], strict=True))
    bounds = np.array(record.edges, np.int64)
    last: dict[int, int] = {}  # by step: when its last collective is handed over
    # what DDP broadcasts has a root, told or not; its buckets have none
    buckets = {at for at in handover_of if ddp and record.collectives[record.collective[at]].operation not in _ROOTED}
    for handed_over in (handover_of[at] for at in buckets):
        step = _step_of(handed_over, bounds, record.steps)
        last[step] = max(handed_over, last.get(step, 0))
    starts = np.array([record.start[at] for at in compute], np.int64)
    handed = sorted(handover_of.values())
    calls = []
    for at in sorted(handover_of, key=lambda at: record.end[at]):
        end, handed_over = record.end[at], handover_of[at]
        bucket = at in buckets
        earliest = max(end, last[_step_of(handed_over, bounds, record.steps)] if bucket else handed_over)
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


def data_between(record: RankRecord, start: int, end: int, *, from_workers: bool = False) -> int:
    """Return for how many ns of a stretch the host loads data; `from_workers`: waits for batches of such."""
    loading = record.from_workers if from_workers else record.data
    if loading.starts.size == 0:
        return 0
    left, right = covered_before(loading, np.array([start, end], np.int64)).tolist()
    return int(right - left)
