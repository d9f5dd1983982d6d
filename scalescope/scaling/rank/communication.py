"""Which kernels are communication, and what is known of each: by metadata, by the launching operator, by name."""

import msgspec
import numpy as np
from msgspec.structs import astuple

from scalescope.records.operations import OPERATION_FACTS, PAIRWISE
from scalescope.scaling.rank.collective import GroupNames
from scalescope.scaling.trace.families import is_communication_kernel
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import KERNEL, CommunicationArgs, Trace

NO_COMMUNICATION = -2  # no communication
UNKNOWN = -1  # communication by its name alone


def communication_of(trace: Trace, order: Ints, launch: Ints, thread: Ints) -> Ints:
    """Return, for each activity in `order`, its index into `trace.communications`, or UNKNOWN, or NO_COMMUNICATION.

    The profiler's own metadata counts first, then the operator that launched the kernel itself, then its name. What old
    profilers do not write on the kernel stands on the operators and annotations around its launch.
    """
    raw = trace.activities
    found = np.full(order.size, NO_COMMUNICATION, np.int64)
    kernel = raw.kind[order] == KERNEL
    by_name = np.array([is_communication_kernel(name) for name in trace.names], bool)
    if by_name.size:
        found[kernel & by_name[raw.name[order]]] = UNKNOWN
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
    known = raw.communication[order] >= 0
    # the operator's own record says more than its kernel's copy of it: the root, and the source and destination
    found[known & (found < 0)] = raw.communication[order][known & (found < 0)]
    # the rest by what stands around the launch
    open_ones = kernel & ((found == UNKNOWN) | ((found == NO_COMMUNICATION) & (external <= 0))) & (launch >= 0)
    calls = communication_calls(trace) if open_ones.any() else []
    for call in calls:
        inside = open_ones & (thread == call.thread) & (launch >= call.start) & (launch <= call.end)
        for position in np.flatnonzero(inside).tolist():
            if found[position] == UNKNOWN or is_own_launch(trace, call, int(launch[position])):
                found[position] = call.index
    link_coalesced(trace, launch, thread, found)
    return found


def link_by_order(trace: Trace, start: Ints, stream: Ints, launch: Ints, communication: Ints) -> None:
    """Link communication kernels that have lost their launches to the calls that have lost their kernels, by order.

    Some ROCm versions write correlation 0 on every communication kernel. The profiler waits for the device before it
    stops, so the last kernels belong to the last calls; those left over at the begin were launched before the window.
    Nothing is linked where that cannot be: more calls than kernels, or a kernel before its call. Times in ns of the
    file's clock; `launch` and `communication` are filled in.
    """
    lost = np.flatnonzero((communication == UNKNOWN) & (launch < 0))
    if not lost.size or np.unique(stream[lost]).size > 1:
        return
    taken = set(communication[communication >= 0].tolist())
    calls = [call for call in communication_calls(trace) if not (call.indices & taken)]
    if not calls or len(calls) > lost.size:
        return
    last = lost[-len(calls) :]
    launches = np.array([call.start for call in calls], np.int64)
    if bool((start[last] < launches).any()):
        return
    launch[last] = launches
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
    for spans, indices in (
        (trace.operators, trace.operator_communication),
        (trace.annotations, trace.annotation_communication),
    ):
        for row, index in indices.items():
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
    said = [here if here is not None else there for here, there in zip(astuple(one), astuple(other), strict=True)]
    return CommunicationArgs(**dict(zip(CommunicationArgs.__struct_fields__, said, strict=True)))


def is_own_launch(trace: Trace, call: CommunicationCall, instant: int) -> bool:
    """Tell whether the call's record is the innermost operator at an instant of its thread."""
    if call.record is None:
        return False
    operators = trace.operators
    inner = (operators.thread == call.thread) & (operators.start > operators.start[call.record])
    return not bool((inner & (operators.start <= instant) & (operators.end >= instant)).any())


def link_coalesced(trace: Trace, launch: Ints, thread: Ints, communication: Ints) -> None:
    """Link communication kernels that no call launched itself to the sends and receives that were called before.

    `batch_isend_irecv` collects sends and receives, and hands them over together when all have been called: their
    kernel is launched outside of every call. What was called on the thread since the kernel before is in it. Of several
    the one to a higher rank stands for all: in a pipeline activations go there, and what is sent and what comes back
    share kernels with the same partner. `communication` is filled in.
    """
    told = set(communication[communication >= 0].tolist())
    known = {index for index in told if trace.communications[index].operation in OPERATION_FACTS}
    unknown = communication != NO_COMMUNICATION
    unknown[unknown] = [index not in known for index in communication[unknown].tolist()]
    kernels = np.flatnonzero(unknown & (launch >= 0))
    if not kernels.size:
        return
    calls = [
        call for call in communication_calls(trace)
        if trace.communications[call.index].operation in PAIRWISE and not (call.indices | {call.index}) & known
    ]  # fmt: skip
    groups, rank = GroupNames(trace), trace.header.distributed.rank
    for one in sorted({int(value) for value in thread[kernels]}):
        waiting = [call for call in calls if call.thread == one]
        for position in sorted(kernels[thread[kernels] == one].tolist(), key=lambda at: int(launch[at])):
            together = [call for call in waiting if call.start <= launch[position]]
            if together:
                waiting = waiting[len(together) :]
                communication[position] = min(
                    together, key=lambda call: _backwards(trace.communications[call.index], groups, rank)
                ).index


def _backwards(args: CommunicationArgs, groups: GroupNames, rank: int) -> bool:
    """Tell whether a send or receive goes to a lower rank of its group; what does not say whose it is, does."""
    ranks = groups.ranks_of(args)
    own = ranks.index(rank) if rank in ranks else rank
    source = own if args.source is None else args.source
    return source >= (own if args.destination is None else args.destination)
