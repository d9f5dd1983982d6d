"""What ran on one rank's device, in order: each activity with its kind, its launch and its step."""

import re
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from scaling.families import (
    dtype_of,
    dtype_of_kernel,
    element_bytes,
    is_communication_kernel,
    operation_of_kernel,
)
from scaling.intervals import Intervals, Ints
from scaling.steps import Steps, find_steps
from scaling.trace import KERNEL, CommunicationArgs, Trace

COMPUTE, COMMUNICATION, COPY = 0, 1, 2

Mask = npt.NDArray[np.bool_]


class RankCollective(msgspec.Struct, kw_only=True, gc=False):
    """One collective as one rank saw it. Times are absolute ns; None where the trace is silent."""

    start: int
    end: int
    operation: str | None = None
    elements: int | None = None  # of the larger of the send and the receive buffer
    bytes: int | None = None
    dtype: str | None = None
    group: str | None = None
    group_ranks: tuple[int, ...] = ()
    group_size: int | None = None
    sequence: int | None = None
    root: int | None = None
    source: int | None = None
    destination: int | None = None
    stream: int = -1
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """One rank's device activities, ascending by start. Times are absolute ns."""

    start: Ints
    end: Ints
    kind: Ints  # COMPUTE, COMMUNICATION or COPY
    launch: Ints  # when the host launched it; -1 where nothing tells
    step: Ints  # index into `steps`, -1 for none
    name: Ints
    stream: Ints
    steps: Steps
    collectives: list[RankCollective]

    def of_kind(self, kind: int) -> Intervals:
        """Return the intervals of one kind, as they stand."""
        chosen = self.kind == kind
        return Intervals(self.start[chosen], self.end[chosen])

    @property
    def linked(self) -> Mask:
        """Which activities have a known launch."""
        mask: Mask = self.launch >= 0
        return mask

    def before_window(self, opens: int) -> Mask:
        """Tell which activities were launched before the first step, whose first compute starts at `opens` (ns).

        Of those with a runtime record that is plain. The others were, if they start before `opens`, or before the first
        activity with a record on their stream: a stream runs things in the order of their launches. An activity that
        starts later without a record has lost it, and counts against the trace.
        """
        linked = self.linked
        if not linked.any():
            return np.zeros(self.start.size, bool)
        streams, of_row = np.unique(self.stream, return_inverse=True)
        first_linked = np.full(streams.size, opens, np.int64)
        # ascending by start, so the last assignment from behind is the earliest
        rows = np.flatnonzero(linked)[::-1]
        first_linked[of_row[rows]] = self.start[rows]
        begin = self.steps.start[0] if len(self.steps) else 0
        unrecorded = ~linked & (self.start < np.maximum(first_linked[of_row], opens))
        early: Mask = unrecorded | (linked & (self.step < 0) & (self.launch < begin))
        return early


def build_timeline(trace: Trace) -> Timeline:
    """Return the device timeline of a trace; an empty one where nothing ran on a device."""
    base = trace.header.base_ns
    raw = trace.activities
    order = np.argsort(raw.start, kind="stable")
    launch, thread = _launches(trace)
    launch, thread = launch[order], thread[order]
    steps = find_steps(trace)
    step = steps.of(launch)
    step[launch < 0] = -1
    communication = _communication_of(trace, order, launch, thread)
    is_kernel = raw.kind[order] == KERNEL
    kind = np.where(is_kernel, COMPUTE, COPY).astype(np.int64)
    kind[communication != _NONE] = COMMUNICATION
    absolute = Steps(steps.numbers, steps.start + base, steps.end + base, steps.thread)
    timeline = Timeline(
        start=raw.start[order] + base,
        end=raw.end[order] + base,
        kind=kind,
        launch=np.where(launch >= 0, launch + base, -1),
        step=step,
        name=raw.name[order].astype(np.int64),
        stream=raw.stream[order],
        steps=absolute,
        collectives=[],
    )
    link_by_order(trace, timeline, communication)
    timeline.collectives.extend(_collectives(trace, timeline, communication))
    return timeline


def _launches(trace: Trace) -> tuple[Ints, Ints]:
    """Return when, and on which thread, each activity was launched; -1 where no runtime call has its correlation."""
    calls, activities = trace.runtime, trace.activities
    launch = np.full(len(activities), -1, np.int64)
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
        launch[hit] = calls.start[known[at[hit]]]
        thread[hit] = calls.thread[known[at[hit]]]
    lost = np.flatnonzero((launch < 0) & (activities.external > 0))
    if lost.size and trace.operator_communication:
        # a collective without a runtime record may still name the operator that launched it
        rows = np.array(sorted(trace.operator_communication), np.int64)
        by_external = {int(trace.operators.external[row]): row for row in rows if trace.operators.external[row] > 0}
        for index in lost.tolist():
            row = by_external.get(int(activities.external[index]))
            if row is not None and trace.operators.start[row] <= activities.start[index]:
                launch[index] = trace.operators.start[row]
                thread[index] = trace.operators.thread[row]
    return launch, thread


_NONE = -2  # no communication
_UNTOLD = -1  # communication by its name alone


def _communication_of(trace: Trace, order: Ints, launch: Ints, thread: Ints) -> Ints:
    """Return, for each activity in `order`, its index into `trace.communications`, or _UNTOLD, or _NONE.

    The profiler's own metadata counts first, then the operator that launched the kernel itself, then its name. What old
    profilers do not write on the kernel stands on the operators and annotations around its launch.
    """
    raw = trace.activities
    found = np.full(order.size, _NONE, np.int64)
    kernel = raw.kind[order] == KERNEL
    by_name = np.array([is_communication_kernel(name) for name in trace.names], bool)
    if by_name.size:
        found[kernel & by_name[raw.name[order]]] = _UNTOLD
    operators = trace.operators
    external = raw.external[order]
    given = external > 0
    if bool((external[given] == raw.correlation[order][given]).all()):
        # old profilers give the correlation once more as external id: it says nothing then
        external = np.full(external.size, -1, np.int64)
    by_external = {
        int(operators.external[row]): index
        for row, index in trace.operator_communication.items()
        if operators.external[row] > 0 and trace.names[operators.name[row]] == "record_param_comms"
    }
    if by_external:
        ids = np.array(sorted(by_external), np.int64)
        at = np.minimum(np.searchsorted(ids, external), ids.size - 1)
        hit = kernel & (ids[at] == external)
        found[hit] = [by_external[int(value)] for value in external[hit]]
    told = raw.communication[order] >= 0
    # the operator's own record says more than its kernel's copy of it: the root, and the source and destination
    found[told & (found < 0)] = raw.communication[order][told & (found < 0)]
    # the rest by what stands around the launch
    open_ones = kernel & ((found == _UNTOLD) | ((found == _NONE) & (external <= 0))) & (launch >= 0)
    calls = communication_calls(trace) if open_ones.any() else []
    for call in calls:
        inside = open_ones & (thread == call.thread) & (launch >= call.start) & (launch <= call.end)
        for position in np.flatnonzero(inside).tolist():
            if found[position] == _UNTOLD or _launches_itself(trace, call, int(launch[position])):
                found[position] = call.index
    return found


def link_by_order(trace: Trace, timeline: "Timeline", communication: Ints) -> None:
    """Link communication kernels that have lost their launches to the calls that have lost their kernels, by order.

    Some ROCm versions write correlation 0 on every communication kernel. The profiler waits for the device before it
    stops, so the last kernels belong to the last calls; those left over at the begin were launched before the window.
    Nothing is linked where that cannot be: more calls than kernels, or a kernel before its call.
    """
    lost = np.flatnonzero((communication == _UNTOLD) & (timeline.launch < 0))
    if not lost.size:
        return
    base = trace.header.base_ns
    taken = {int(index) for index in communication if index >= 0}
    calls = [call for call in communication_calls(trace) if not (call.indices & taken)]
    if not calls or len(calls) > lost.size or len({int(stream) for stream in timeline.stream[lost]}) > 1:
        return
    last = lost[-len(calls) :]
    launches = np.array([call.start for call in calls], np.int64) + base
    if bool((timeline.start[last] < launches).any()):
        return
    timeline.launch[last] = launches
    timeline.step[last] = timeline.steps.of(launches)
    communication[last] = [call.index for call in calls]


class CommunicationCall(msgspec.Struct):
    """Nested operators and annotations of one collective on the host, as one: a span in ns of the file's clock."""

    start: int
    end: int
    thread: int
    index: int  # of what they say together, in Trace.communications
    indices: set[int]  # of what each says
    record: int | None  # the row of record_param_comms among the operators


def communication_calls(trace: Trace) -> list[CommunicationCall]:
    """Return the collectives the host called, ascending by start, with all that c10d, record and annotation say.

    `c10d::alltoall_base_` ⊃ `record_param_comms` ⊃ `nccl:all_to_all`: which of them carry operation, sizes and group
    differs from torch 1.8 to 2.13. What they say together is appended to the trace's communications.
    """
    rows = []
    for spans, told in (
        (trace.operators, trace.operator_communication),
        (trace.annotations, trace.annotation_communication),
    ):
        for row, index in told.items():
            name = trace.names[spans.name[row]]
            own = row if name == "record_param_comms" else None
            rows.append((int(spans.start[row]), -int(spans.end[row]), int(spans.thread[row]), index, own, name))
    rows.sort(key=lambda row: row[:4])
    calls: list[CommunicationCall] = []
    current: dict[int, CommunicationCall] = {}
    for start, negative_end, thread, index, record, name in rows:
        call = current.get(thread)
        if call is None or start >= call.end:
            call = CommunicationCall(start, -negative_end, thread, index, set(), None)
            current[thread] = call
            calls.append(call)
        call.indices.add(index)
        call.record = record if record is not None else call.record
        if len(call.indices) > 1:
            merged = _merge(trace.communications[call.index], trace.communications[index], name)
            trace.communications.append(merged)
            call.index = len(trace.communications) - 1
    return calls


def _merge(outer: CommunicationArgs, inner: CommunicationArgs, name: str) -> CommunicationArgs:
    """Fill in what the outer span does not say; a record's own group and counts are the better ones."""
    one, other = (inner, outer) if name == "record_param_comms" and inner.group is not None else (outer, inner)
    fields = {
        field: getattr(one, field) if getattr(one, field) is not None else getattr(other, field)
        for field in CommunicationArgs.__struct_fields__
    }
    return CommunicationArgs(**fields)


def _launches_itself(trace: Trace, call: CommunicationCall, instant: int) -> bool:
    """Tell whether the call's record is the innermost operator at an instant of its thread."""
    if call.record is None:
        return False
    operators = trace.operators
    inner = (operators.thread == call.thread) & (operators.start > operators.start[call.record])
    return not bool((inner & (operators.start <= instant) & (operators.end >= instant)).any())


def _collectives(trace: Trace, timeline: Timeline, communication: Ints) -> list[RankCollective]:
    groups = GroupNames(trace)
    result = []
    for position in np.flatnonzero(communication != _NONE).tolist():
        index = int(communication[position])
        args = trace.communications[index] if index >= 0 else None
        name = trace.names[timeline.name[position]]
        step = int(timeline.step[position])
        collective = describe(args, groups)
        collective.start = int(timeline.start[position])
        collective.end = int(timeline.end[position])
        collective.stream = int(timeline.stream[position])
        collective.operation = collective.operation or operation_of_kernel(name)
        collective.dtype = collective.dtype or dtype_of_kernel(name)
        collective.step = int(timeline.steps.numbers[step]) if step >= 0 else None
        result.append(collective)
    groups.complete(result)
    return result


def describe(args: CommunicationArgs | None, groups: "GroupNames") -> RankCollective:
    """Return a collective with all that its arguments say; times are for the caller to fill in."""
    collective = RankCollective(start=0, end=0)
    if args is None:
        return collective
    counts = [count for count in (args.in_elements, args.out_elements) if count is not None]
    collective.operation = args.operation
    collective.elements = max(counts) if counts else None
    collective.dtype = dtype_of(args.dtype) if args.dtype else None
    size = element_bytes(args.dtype) if args.dtype else None
    if collective.elements is not None and size is not None:
        collective.bytes = collective.elements * size
    collective.group = args.group
    collective.group_ranks = groups.ranks_of(args)
    collective.group_size = args.group_size or len(collective.group_ranks) or None
    collective.sequence = args.sequence
    collective.root = args.root
    collective.source = args.source
    collective.destination = args.destination
    return collective


class GroupNames:
    """Completes what collectives say about their group from the header and from their neighbours on the stream."""

    def __init__(self, trace: Trace) -> None:
        info = trace.header.distributed
        self._ranks = {str(group.pg_name): tuple(group.ranks) for group in info.pg_config}
        self._world = max(info.world_size, 0)
        # where all groups hold the same ranks, it does not matter for matching which of them an unnamed one belongs to
        same = len(set(self._ranks.values())) == 1
        self._only = str(info.pg_config[0].pg_name) if same else None

    def ranks_of(self, args: CommunicationArgs) -> tuple[int, ...]:
        """Return the global ranks of the group; empty where neither the arguments nor the header list them whole."""
        if args.group_ranks and "..." not in args.group_ranks:
            ranks = tuple(int(number) for number in re.findall(r"\d+", args.group_ranks))
            if ranks:
                return ranks
        return self._ranks.get(args.group or "", ())

    def complete(self, collectives: list[RankCollective]) -> None:
        """Give collectives without a group the one that all others on their stream have, else the only one there is.

        torch runs each group on a stream of its own, so kernels without metadata, launched before the window, belong
        to the group whose later kernels stand on the same stream.
        """
        on_stream: dict[int, set[tuple[str, tuple[int, ...], int | None]]] = {}
        for one in collectives:
            if one.group is not None:
                on_stream.setdefault(one.stream, set()).add((one.group, one.group_ranks, one.group_size))
        for one in collectives:
            if one.group is not None:
                continue
            candidates = on_stream.get(one.stream, set())
            if len(candidates) == 1:
                one.group, one.group_ranks, one.group_size = next(iter(candidates))
            elif self._only is not None and not candidates:
                one.group = self._only
                one.group_ranks = self._ranks[self._only]
                one.group_size = len(one.group_ranks) or self._world or None
