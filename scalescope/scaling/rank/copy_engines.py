"""Collectives on copy engines: copies that a communication library launches, joined into one activity each.

NCCL from 2.28 on (zero-CTA policy, symmetric buffers) and RCCL let all_gather, all_to_all, gather and scatter run
without kernels. In a trace such a collective is a few memcpys of one call, launched by the call's own
`record_param_comms`: its own share on the device, and one to each peer. Between the first one's begin and the last
one's end the collective moves data. What it waits for, its partners, is no activity at all: the stream stands still
before the first copy. Where nothing else runs on the device meanwhile, and the copies are enqueued, there is nothing of
its own left that they could wait for: the collective has begun, and waits. Beside other work a trace does not tell.
"""

import msgspec
import numpy as np
from msgspec.structs import replace

from scalescope.scaling.rank.communication import CommunicationCall, communication_calls, is_own_launch
from scalescope.scaling.rank.launches import find_launches
from scalescope.scaling.trace.families import is_communication_kernel
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import KERNEL, Activities, Trace

#: What the joined activity is called. By this name alone it is communication.
COPY_ENGINES = "nccl (copy engines)"


def join_copies(trace: Trace) -> Trace:
    """Return the trace with the copies of each collective joined into one activity; the same one where there are none.

    A call that launched a communication kernel, too, runs on multiprocessors: its copies stay copies. So do those of a
    group of one rank, which moves nothing between ranks.
    """
    activities = trace.activities
    if not trace.operator_communication or not _may_have_some(trace):
        return trace
    launches = find_launches(trace)
    of_call = _calls_of(trace, launches.start, launches.thread)
    moving = np.array([is_communication_kernel(name) for name in trace.names], bool)[activities.name]
    on_kernels = np.unique(of_call[(activities.kind == KERNEL) & moving])
    mine = (activities.kind != KERNEL) & (of_call >= 0) & ~np.isin(of_call, on_kernels)
    # a stream that runs nothing but collectives ran such before the window, too, whose calls nobody recorded
    streams = np.unique(activities.stream[mine])
    others = np.unique(activities.stream[~mine & (launches.start >= 0)])
    early = (activities.kind != KERNEL) & (launches.start < 0) & (activities.correlation > 0)
    early &= np.isin(activities.stream, np.setdiff1d(streams, others))
    if not mine.any():
        return trace
    enqueued = np.where(launches.enqueued >= 0, launches.enqueued, launches.start)
    groups = _Groups(activities, np.where(mine, of_call, -1), early, _stands_from(activities, enqueued))
    names = list(trace.names)
    if COPY_ENGINES not in names:
        names.append(COPY_ENGINES)
    return replace(trace, names=names, activities=groups.joined(names.index(COPY_ENGINES)))


def _may_have_some(trace: Trace) -> bool:
    """Tell at little cost whether a copy may be a collective's: by its operator, or where no operator is told."""
    activities = trace.activities
    copies = activities.external[activities.kind != KERNEL]
    if not (activities.external > 0).any():
        return bool(copies.size)
    records = trace.operators.external[np.array(list(trace.operator_communication), np.int64)]
    return bool(np.isin(copies, records[records > 0]).any())


def _calls_of(trace: Trace, launch: Ints, thread: Ints) -> Ints:
    """Return the number of the collective's call that launched each activity itself, -1 for none."""
    activities = trace.activities
    calls = [call for call in communication_calls(trace) if call.record is not None and _between_ranks(trace, call)]
    found = np.full(len(activities), -1, np.int64)
    numbers = {
        int(trace.operators.external[call.record]): number
        for number, call in enumerate(calls)
        if call.record is not None
    }
    numbers = {external: number for external, number in numbers.items() if external > 0}
    given = activities.external > 0
    if bool((activities.external[given] == activities.correlation[given]).all()):
        given[:] = False  # old profilers give the correlation once more as external id: it says nothing then
    if numbers:
        ids = np.array(sorted(numbers), np.int64)
        at = np.minimum(np.searchsorted(ids, activities.external), ids.size - 1)
        hit = given & (ids[at] == activities.external)
        found[hit] = [numbers[external] for external in activities.external[hit].tolist()]
    open_ones = (found < 0) & ~given & (launch >= 0)
    for number, call in enumerate(calls if open_ones.any() else []):
        inside = open_ones & (thread == call.thread) & (launch >= call.start) & (launch <= call.end)
        for row in np.flatnonzero(inside).tolist():
            if is_own_launch(trace, call, int(launch[row])):
                found[row] = number
    return found


def _between_ranks(trace: Trace, call: CommunicationCall) -> bool:
    return trace.communications[call.index].group_size != 1


def _stands_from(activities: Activities, enqueued: Ints) -> Ints:
    """Return since when each activity was all that there was to do, ns: its own begin where other work ran until then.

    `enqueued`: -1 where that is not known, as of what was launched before the window: it says nothing of itself.
    """
    order = np.argsort(activities.start, kind="stable")
    start, ready = activities.start[order], enqueued[order]
    idle = np.concatenate((start[:1], np.maximum.accumulate(activities.end[order])[:-1]))
    since = np.maximum(idle, ready)
    found = activities.start.copy()
    found[order] = np.where((ready >= 0) & (since < start), since, start)
    return found


class _Groups(msgspec.Struct, frozen=True):
    """Which activities are of one collective: by its call, or early ones by their correlation."""

    activities: Activities
    of_call: Ints
    early: Ints
    stands_from: Ints  # of each activity, since when it alone is waited for

    def joined(self, name: int) -> Activities:
        """Return the activities, each group's as one kernel.

        It runs from when the first one is all that the device has to do, or from its begin, to the last one's end.
        """
        activities = self.activities
        key = np.full(len(activities), -1, np.int64)
        key[self.of_call >= 0] = 2 * self.of_call[self.of_call >= 0]
        key[self.early] = 2 * activities.correlation[self.early] + 1
        grouped = np.flatnonzero(key >= 0)
        # collectives of one call stand on one stream; what stands on another is another one
        _, of_row = np.unique(np.stack((key[grouped], activities.stream[grouped])), axis=1, return_inverse=True)
        of_row = of_row.reshape(-1)
        count = int(of_row.max()) + 1 if of_row.size else 0
        last = np.zeros(count, np.int64)
        np.maximum.at(last, of_row, activities.end[grouped])
        stands_for = np.full(count, -1, np.int64)
        for row, group in zip(grouped.tolist(), of_row.tolist(), strict=True):
            if stands_for[group] < 0 or activities.start[row] < activities.start[stands_for[group]]:
                stands_for[group] = row
        start, end = activities.start.copy(), activities.end.copy()
        names, kind = activities.name.copy(), activities.kind.copy()
        start[stands_for], end[stands_for] = self.stands_from[stands_for], last
        names[stands_for], kind[stands_for] = name, KERNEL
        kept = key < 0
        kept[stands_for] = True
        return Activities(
            start[kept], end[kept], names[kept], kind[kept], activities.stream[kept], activities.device[kept],
            activities.correlation[kept], activities.external[kept], activities.communication[kept],
            activities.blocks[kept],
        )  # fmt: skip
