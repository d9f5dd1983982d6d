"""What a call that holds up the host costs: how long the device idles after it.

When the host comes back the device may have nothing left to do. It idles until the next launch reaches it, and again
between further launches until the host is ahead once more. Idle time counts from the call on, up to the first thing
launched after it, or as long as what is launched then finds the device idle; but no further than the next such call.
The second figure is an upper bound: a host that is never ahead has other reasons.
"""

import numpy as np

from scalescope.scaling.evidence.host_timeline import Spans
from scalescope.scaling.rank.timeline import Timeline
from scalescope.scaling.trace.intervals import Intervals, Ints, covered_before, union

#: What is launched this long before the device comes to it, ns, has found the host ahead.
_AHEAD_NS = 100_000


def idle_after(calls: Spans, device: Timeline, until: int) -> tuple[Ints, Ints]:
    """Return how long the device idles after each call, ns: until something new runs, and until the host is ahead.

    `calls` ascend by start; the last one answers for no more than reaches up to `until`.
    """
    start, end = calls.start, calls.end
    busy = union(Intervals(device.start, device.end))
    idle = Intervals(busy.ends[:-1], busy.starts[1:])
    order = np.lexsort((device.start, device.launch))
    launch, begun = device.launch[order], device.start[order]
    next_call = np.concatenate((start[1:], [until]))
    at = np.searchsorted(launch, end)
    far = np.iinfo(np.int64).max
    first = np.where(at < launch.size, begun[np.minimum(at, max(launch.size - 1, 0))], far)
    # the next launch that the host made well before the device came to it
    is_ahead = np.flatnonzero(begun - device.enqueued[order] >= _AHEAD_NS)
    at_ahead = np.searchsorted(is_ahead, at)
    reached = at_ahead < is_ahead.size
    ahead = np.full(start.size, far, np.int64)
    ahead[reached] = begun[is_ahead[at_ahead[reached]]]
    before = covered_before(idle, start)
    to_first = covered_before(idle, np.minimum(first, np.maximum(next_call, end))) - before
    to_ahead = covered_before(idle, np.minimum(np.maximum(ahead, first), np.maximum(next_call, end))) - before
    return np.maximum(to_first, 0), np.maximum(to_ahead, 0)
