"""A device's clock that is off its host's, however far: brought to it by what cannot be, such as a run before a launch.

Nothing runs before it is launched, and what was launched before a call that waits for the device has ended when that
returns: where traces say otherwise, the device's times are moved until both hold. The two bound how far. Where no move
lets both hold, no clock is to blame, and it is single times that are broken.
"""

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from scalescope.scaling.rank.launches import LaunchTimes, find_launches
from scalescope.scaling.rank.times.stream_order import MISPLACED_NS, LeftOut, Mask, disordered, out_of_order, without
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import Trace

#: Clocks of a device and its host, which profilers bring together, are off by no more than this.
_CLOCKS_NS = 20_000
#: What is launched begins so much later at the soonest, and a call that waits returns so much after the last end: on
#: H200s 3.6 µs to 7 and 5 to 30.
_LAUNCHING_NS, _RETURNING_NS = 4_000, 20_000
#: Fewer activities with a launch than this tell nothing of clocks and order.
_TELLING = 20
#: A share of launches that may be in disorder, or linked wrongly, for whatever reason.
_ODD = 0.001
#: Of more than this, times say nothing of clocks.
_DISORDER = 0.01
#: A device goes on behind its host's last call for no longer than this, or than the window.
_GOES_ON_NS = 1_000_000_000


class Moved(NamedTuple):
    """By how much a device's times were moved onto its host's clock."""

    ns: int = 0  # later; below 0 where its clock was ahead
    at_most_ns: int | None = None  # it may be more, up to this; None where nothing bounds it


class OnHostsClock(NamedTuple):
    """A trace with its device's times on its host's clock, and without those that cannot be."""

    trace: Trace
    launches: LaunchTimes
    moved: Moved
    left_out: LeftOut


def by_the_hosts_clock(trace: Trace) -> OnHostsClock:
    """Return a trace on one clock, without the few activities whose times no clock explains; its activities' launches.

    Where they are more than a few they stay, and `misplaced` counts them.
    """
    trace, disorder = without(trace, out_of_order(trace))
    launches = find_launches(trace)
    moved = _device_is_behind(trace, launches.start) if trace.framework == "torch" else Moved()
    if moved.ns:
        raw = trace.activities
        trace = replace(trace, activities=replace(raw, start=raw.start + moved.ns, end=raw.end + moved.ns))
        launches = find_launches(trace)
    trace, early = without(trace, _impossible(trace, launches))
    if early.activities:
        launches = find_launches(trace)
    left_out = LeftOut(disorder.activities + early.activities, disorder.share + early.share)
    return OnHostsClock(trace, launches, moved, left_out)


def misplaced(trace: Trace, launches: LaunchTimes) -> int:
    """Return how many activities are where calls of the host, or the others of their stream, say that they are not."""
    return int((_impossible(trace, launches) | out_of_order(trace)).sum())


def _impossible(trace: Trace, launches: LaunchTimes) -> Mask:
    """Tell which activities begin before their launch, or end behind a call that had waited for them."""
    raw = trace.activities
    if trace.framework != "torch":
        return np.zeros(len(raw), bool)
    known = (launches.start >= 0) & (raw.correlation > 0)
    broken: Mask = known & (launches.start - raw.start > MISPLACED_NS)
    waits = _waits(trace)
    if waits.size and np.unique(raw.device).size == 1:
        waits = waits[np.argsort(trace.runtime.start[waits])]
        over = np.minimum.accumulate(trace.runtime.end[waits][::-1])[::-1]
        at = np.searchsorted(trace.runtime.start[waits], launches.returned)
        awaited = known & (at < waits.size)
        broken |= awaited & (raw.end > over[np.minimum(at, waits.size - 1)] + MISPLACED_NS)
    return broken


def _waits(trace: Trace) -> Ints:
    """Return the calls that wait for all of a device."""
    waiting = np.array([name.endswith("DeviceSynchronize") for name in trace.names], bool)
    return np.flatnonzero(waiting[trace.runtime.name]) if len(trace.runtime) else np.empty(0, np.int64)


def _device_is_behind(trace: Trace, launch: Ints) -> Moved:
    """Return by how many ns a device's clock is behind its host's, below 0 where it is ahead; 0 where nothing says so.

    Of a clock that is ahead only calls that wait for all of the device tell.
    """
    raw = trace.activities
    known = (launch >= 0) & (raw.correlation > 0)
    count = int(known.sum())
    if count < _TELLING or disordered(trace, launch) > _DISORDER * count:
        return Moved()
    early = np.sort(launch[known] - raw.start[known])
    behind = int(early[-1 - int(_ODD * count)])
    room = _room_behind(trace, launch[known], raw.end[known])
    if behind > _CLOCKS_NS:
        return _moved_later(launch[known], raw.start[known], behind, room)
    if room is None and _is_out_of_reach(launch[known], -behind):
        return Moved(behind + _LAUNCHING_NS, None)
    ahead = -room if room is not None else 0
    return Moved(-min(ahead + _RETURNING_NS, -behind), -ahead) if _CLOCKS_NS < ahead < -behind else Moved()


def _moved_later(launch: Ints, start: Ints, behind: int, room: int | None) -> Moved:
    """Return the move of a device that is behind by no less than `behind` ns, and by no more than `room`."""
    if room is not None:
        if room < behind - _CLOCKS_NS:
            return Moved()  # no clock lets what ran have ended when the host had waited for it
        # a device that is busy all the while tells nothing by its launches, and all by the call that waits for it
        near = room - _RETURNING_NS if room - behind > MISPLACED_NS else behind + _LAUNCHING_NS
        return Moved(near, max(near, room))
    beyond = start + behind - int(launch.max())
    broken = _is_out_of_reach(launch, float(np.quantile(beyond, 1 - _DISORDER)))
    return Moved() if broken else Moved(behind + _LAUNCHING_NS, None)


def _is_out_of_reach(launch: Ints, later: float) -> bool:
    """Tell whether a device that runs so much later, ns, than it is launched has not what these launches gave it."""
    return later > max(int(launch.max() - launch.min()), _GOES_ON_NS)


def _room_behind(trace: Trace, launch: Ints, end: Ints) -> int | None:
    """Return how much later a device's times may be, ns, until calls that wait for all of it return too soon; below 0
    where they do so already, None without such a call. `launch`, `end`: of its activities.
    """
    calls = _waits(trace)
    if np.unique(trace.activities.device).size > 1:
        return None  # such a call waits for one device
    order = np.argsort(launch, kind="stable")
    ends = np.maximum.accumulate(end[order])
    before = np.searchsorted(launch[order], trace.runtime.start[calls]) - 1
    calls, before = calls[before >= 0], before[before >= 0]
    return int((trace.runtime.end[calls] - ends[before]).min()) if calls.size else None
