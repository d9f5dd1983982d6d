"""When the host waits in a runtime call: for the device, for room in its queue, for a copy out of pageable memory.

A call that synchronises by its name waits all the time that it takes. Any other does where it takes far longer than
its kind: launches return in microseconds unless about 1,000 of them are outstanding, copies unless memory is pageable.
"""

import numpy as np

from scalescope.scaling.evidence.host_calls import SYNCHRONISING
from scalescope.scaling.evidence.host_timeline import HostTimeline
from scalescope.scaling.trace.intervals import Intervals, Ints, union

#: A call that takes no longer has not waited, ns.
QUICK_NS = 20_000
#: One that takes so many times its kind's median has.
_FAR_LONGER = 8


def synchronising_calls(host: HostTimeline) -> Ints:
    """Return the rows of the calls that wait for the device by their name."""
    rows: Ints = np.flatnonzero(host.named(SYNCHRONISING)[host.calls.name])
    return rows


def held_up(host: HostTimeline) -> Intervals:
    """Return when the host waits in a call: a disjoint set in absolute ns."""
    calls = host.calls
    if not len(calls):
        return union()
    duration = calls.end - calls.start
    waits = host.named(SYNCHRONISING)[calls.name]
    slow = (duration > QUICK_NS) & ~waits
    for name in np.unique(calls.name[slow]).tolist():
        kind = calls.name == name
        far = max(QUICK_NS, _FAR_LONGER * int(np.median(duration[kind])))
        waits |= kind & (duration > far)
    return union(calls.of(waits).intervals)
