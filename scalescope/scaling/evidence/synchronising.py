"""Where the host waits for the device in the middle of a step, and what that costs.

The wait itself costs nothing: the device works meanwhile. What follows does (see idle_after.py).
"""

import msgspec
import numpy as np

from scalescope.scaling.evidence.enclosing import Enclosing
from scalescope.scaling.evidence.host_calls import ASYNCHRONOUS_COPY
from scalescope.scaling.evidence.host_timeline import HostTimeline, Spans
from scalescope.scaling.evidence.idle_after import idle_after
from scalescope.scaling.evidence.waiting import QUICK_NS, synchronising_calls
from scalescope.scaling.rank.annotations.loading import copies_from_host
from scalescope.scaling.rank.records.callers import NO_CODE, OwnCode, line_of
from scalescope.scaling.rank.timeline import Timeline
from scalescope.scaling.trace.intervals import Ints

#: A copy's call that waits for nothing takes no longer while it is recorded, ns.
_MOST_USUAL_NS = 30_000
#: So many places are kept a rank, those whose calls idle the device most.
MOST_PLACES = 16


class Synchronisation(msgspec.Struct, frozen=True, kw_only=True):
    """The synchronising calls of one name at one place. Tuples have a value a step."""

    call: str  # `cudaStreamSynchronize`
    operator: str  # the outermost around it, such as `aten::item`; empty for none
    annotation: str  # the innermost of the user's around it; empty for none
    from_host: bool = False  # it waits for a copy out of the host's memory, as of a batch that is not pinned
    calls: tuple[int, ...]
    wait_ns: tuple[int, ...]
    idle_ns: tuple[int, ...]
    idle_until_ahead_ns: tuple[int, ...]
    line: str | None = None  # the function of the script that makes most of them


def synchronisations(
    host: HostTimeline, device: Timeline, around: Enclosing, code: OwnCode = NO_CODE
) -> tuple[Synchronisation, ...]:
    """Return the calls of the steps that wait for the device, added up by place, those that idle it most first."""
    rows = np.concatenate((synchronising_calls(host), _waiting_copies(host, device)))
    rows = np.unique(rows)
    step = host.step_of(host.calls.start[rows])
    rows, step = rows[step >= 0], step[step >= 0]
    if not rows.size:
        return ()
    rows, step, calls = _with_their_copies(host, rows, step)
    first, ahead = idle_after(calls, device, int(host.edges[-1]))
    from_host = _copy_from_host(host, device, rows)
    places = np.stack(
        [calls.name, around.operators(calls.start, calls.thread), around.annotations(calls.start), from_host]
    )
    found, of_call = np.unique(places, axis=1, return_inverse=True)
    tables = np.zeros((4, found.shape[1], len(host)), np.int64)
    for table, values in zip(
        tables, (np.ones(rows.size, np.int64), calls.end - calls.start, first, ahead), strict=True
    ):
        np.add.at(table, (of_call.reshape(-1), step), values)
    order = np.lexsort((-tables[1].sum(axis=1), -tables[3].sum(axis=1)))[:MOST_PLACES]
    return tuple(
        Synchronisation(
            call=host.names[found[0, place]],
            operator=host.names[found[1, place]] if found[1, place] >= 0 else "",
            annotation=host.names[found[2, place]] if found[2, place] >= 0 else "",
            from_host=bool(found[3, place]),
            calls=tuple(tables[0, place].tolist()),
            wait_ns=tuple(tables[1, place].tolist()),
            idle_ns=tuple(tables[2, place].tolist()),
            idle_until_ahead_ns=tuple(tables[3, place].tolist()),
            line=_line(code, calls.of(of_call.reshape(-1) == place)),
        )
        for place in order.tolist()
    )


def _line(code: OwnCode, calls: Spans) -> str | None:
    """Return the function of the script that makes most of some calls."""
    return line_of(code.at_calls(calls.start, calls.thread, np.ones(len(calls), np.int64)), [code]) if code else None


def _with_their_copies(host: HostTimeline, rows: Ints, step: Ints) -> tuple[Ints, Ints, Spans]:
    """Return the calls, those that wait right behind a copy that waits as one with it, which torch makes for one read.

    Whether such a copy waits, or the call behind it, is a matter of µs, and none of how often a host waits.
    """
    calls, before = host.calls, _before(host)
    copies = host.named(ASYNCHRONOUS_COPY)[calls.name[rows]]
    behind = ~copies & np.isin(before[rows], rows[copies])
    start = np.where(behind, calls.start[np.maximum(before[rows], 0)], calls.start[rows])
    kept = ~np.isin(rows, before[rows][behind])
    order = np.argsort(start[kept], kind="stable")
    rows, step, start = rows[kept][order], step[kept][order], start[kept][order]
    return rows, step, msgspec.structs.replace(calls.of(rows), start=start)


def _before(host: HostTimeline) -> Ints:
    """Return the call before each one on its thread, as a row of them; -1 where there is none."""
    calls = host.calls
    order = np.lexsort((calls.start, calls.thread))
    before = np.full(len(calls), -1, np.int64)
    same = calls.thread[order][1:] == calls.thread[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def _copy_from_host(host: HostTimeline, device: Timeline, rows: Ints) -> Ints:
    """Return 1 for each call that copies out of the host's memory itself, or waits right behind one that does, else 0.

    `rows`: of the host's calls. torch waits so for a copy that is to block, or comes out of memory that is not pinned.
    """
    named = np.array([copies_from_host(name) for name in host.names], bool)
    launches = np.sort(device.launch[named[device.name] & device.linked])
    if not launches.size:
        return np.zeros(rows.size, np.int64)
    before = _before(host)
    copies = np.isin(host.calls.start, launches)
    behind = (before[rows] >= 0) & copies[before[rows]]
    found: Ints = (copies[rows] | behind).astype(np.int64)
    return found


def _waiting_copies(host: HostTimeline, device: Timeline) -> Ints:
    """Return the rows of copies that are asynchronous by name, and yet return only when the copy is done.

    To a device that idles a copy is done within the time that any call of its kind takes, and nothing waited for it.
    """
    calls = host.calls
    duration = calls.end - calls.start
    rows = np.flatnonzero(host.named(ASYNCHRONOUS_COPY)[calls.name])
    if not (duration[rows] > QUICK_NS).any():
        return np.empty(0, np.int64)
    # an activity of the device knows its launch by the time alone
    order = np.argsort(device.launch, kind="stable")
    launches = device.launch[order]
    at = np.minimum(np.searchsorted(launches, calls.start[rows]), launches.size - 1)
    waited = (launches[at] == calls.start[rows]) & (device.end[order][at] <= calls.end[rows])
    usual = np.zeros(rows.size, np.int64)
    for name in np.unique(calls.name[rows]).tolist():
        kind = calls.name[rows] == name
        usual[kind] = min(int(np.median(duration[rows][kind])), _MOST_USUAL_NS)
    found: Ints = rows[waited & (duration[rows] > usual + QUICK_NS)]
    return found
