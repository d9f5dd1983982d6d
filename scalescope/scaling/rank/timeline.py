"""What ran on one rank's device, in order: each activity with its kind, its launch and its step."""

import msgspec
import numpy as np
import numpy.typing as npt

from scalescope.scaling.rank.collective import GroupNames, RankCollective, describe, name_both_ends
from scalescope.scaling.rank.communication import NO_COMMUNICATION, communication_of, link_by_order
from scalescope.scaling.rank.copy_engines import COPY_ENGINES
from scalescope.scaling.rank.launches import LaunchTimes, find_launches
from scalescope.scaling.rank.step_sources.cut import whole_by_launches
from scalescope.scaling.rank.step_sources.steps import Steps
from scalescope.scaling.rank.steps import find_steps
from scalescope.scaling.trace.families import dtype_of_kernel, is_symmetric_kernel, operation_of_kernel
from scalescope.scaling.trace.intervals import Intervals, Ints
from scalescope.scaling.trace.trace import KERNEL, Trace

COMPUTE, COMMUNICATION, COPY = 0, 1, 2

Mask = npt.NDArray[np.bool_]


class Timeline(msgspec.Struct, frozen=True):
    """One rank's device activities, ascending by start. Times are absolute ns."""

    start: Ints
    end: Ints
    kind: Ints  # COMPUTE, COMMUNICATION or COPY
    launch: Ints  # when the host launched it; -1 where nothing tells
    enqueued: Ints  # from when on the device could have run it; -1 where nothing tells
    step: Ints  # index into `steps`, -1 for none
    name: Ints
    stream: Ints
    steps: Steps
    collectives: list[RankCollective]
    #: how many steps, from the first, a file that ends early holds whole; -1: it ends where it should
    whole: int = -1

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


def build_timeline(trace: Trace, launches: LaunchTimes | None = None, only: tuple[int, int] | None = None) -> Timeline:
    """Return the device timeline of a trace, an empty one where nothing ran on a device.

    `launches`: where known. `only`: of the steps from one number to another.
    """
    base = trace.header.base_ns
    raw = trace.activities
    order = np.argsort(raw.start, kind="stable")
    launches = launches or find_launches(trace)
    launch, enqueued, thread = launches.start[order], launches.enqueued[order], launches.thread[order]
    communication = communication_of(trace, order, launch, thread)
    link_by_order(trace, raw.start[order], raw.stream[order], launch, communication)
    enqueued = np.where(enqueued >= 0, enqueued, launch)
    steps = find_steps(trace, only)
    step = steps.of(launch)
    step[launch < 0] = -1
    kind = np.where(raw.kind[order] == KERNEL, COMPUTE, COPY).astype(np.int64)
    kind[communication != NO_COMMUNICATION] = COMMUNICATION
    timeline = Timeline(
        start=raw.start[order] + base,
        end=raw.end[order] + base,
        kind=kind,
        launch=np.where(launch >= 0, launch + base, -1),
        enqueued=np.where(enqueued >= 0, enqueued + base, -1),
        step=step,
        name=raw.name[order].astype(np.int64),
        stream=raw.stream[order],
        steps=steps.shifted(base),
        collectives=[],
        whole=whole_by_launches(trace, steps, launch, thread),
    )
    timeline.collectives.extend(_collectives(trace, timeline, communication))
    return timeline


def _collectives(trace: Trace, timeline: Timeline, communication: Ints) -> list[RankCollective]:
    groups = GroupNames(trace)
    result = []
    for position in np.flatnonzero(communication != NO_COMMUNICATION).tolist():
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
        collective.by_copies = name == COPY_ENGINES
        collective.over_windows = is_symmetric_kernel(name)
        collective.step = int(timeline.steps.numbers[step]) if step >= 0 else None
        result.append(collective)
    groups.complete(result)
    for one in result:
        name_both_ends(one, trace.header.distributed.rank)
    return result
