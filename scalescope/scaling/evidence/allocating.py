"""Where the host takes memory from the driver, or gives it back, in the middle of a step.

Torch's allocator keeps what it once took, so in a steady step no such call is made. One that is made takes long itself,
and a free waits until the device has done everything, which then waits for the host.
"""

import msgspec
import numpy as np

from scalescope.scaling.evidence.enclosing import Enclosing
from scalescope.scaling.evidence.host_calls import ALLOCATING
from scalescope.scaling.evidence.host_timeline import HostTimeline
from scalescope.scaling.evidence.idle_after import idle_after
from scalescope.scaling.rank.timeline import Timeline

#: So many places are kept a rank, those that take longest.
MOST_PLACES = 12


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one name at one place. Tuples have a value a step."""

    call: str  # `cudaMalloc`, `cudaFree`, …
    operator: str  # the outermost around it; empty for none, as where the cache is emptied
    calls: tuple[int, ...]
    ns: tuple[int, ...]
    idle_ns: tuple[int, ...]  # of the device, from the call until the first thing launched after it runs


def allocations(host: HostTimeline, device: Timeline, around: Enclosing) -> tuple[Allocation, ...]:
    """Return the calls of the steps that take memory or give it back, added up by place, the longest first."""
    rows = np.flatnonzero(host.named(ALLOCATING)[host.calls.name])
    step = host.step_of(host.calls.start[rows])
    rows, step = rows[step >= 0], step[step >= 0]
    if not rows.size:
        return ()
    calls = host.calls.of(rows)
    idle, _ = idle_after(calls, device, int(host.edges[-1]))
    places = np.stack([calls.name, around.operators(calls.start, calls.thread)])
    found, of_call = np.unique(places, axis=1, return_inverse=True)
    tables = np.zeros((3, found.shape[1], len(host)), np.int64)
    for table, values in zip(tables, (np.ones(rows.size, np.int64), calls.end - calls.start, idle), strict=True):
        np.add.at(table, (of_call.reshape(-1), step), values)
    order = np.argsort(-tables[1].sum(axis=1), kind="stable")[:MOST_PLACES]
    names = [*host.names, ""]  # -1 is the last
    return tuple(
        Allocation(
            call=names[found[0, place]],
            operator=names[found[1, place]],
            calls=tuple(tables[0, place].tolist()),
            ns=tuple(tables[1, place].tolist()),
            idle_ns=tuple(tables[2, place].tolist()),
        )
        for place in order.tolist()
    )
