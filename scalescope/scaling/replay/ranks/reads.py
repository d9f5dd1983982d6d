"""What a host reads off its device, and what runs for that alone.

A read is a copy to the host and the wait for it, right behind one another (`.item()`, `.cpu()`). Such a copy is for
nothing but the read. Whether the kernels before it are, no trace tells: a loss is there whoever reads it. But where
reads follow one another and little lies between two of them (gradients' norms, one after another, for a log), that is
what computes the value: a *row*. Then what lies between them, on the host and on the device, goes with the reads.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from scalescope.scaling.rank.annotations.loading import copies_to_host
from scalescope.scaling.rank.timeline import COMMUNICATION, COPY
from scalescope.scaling.replay.graph import Graph, HostCall
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of

#: So few launches make a value of a tensor that is there: a norm, or whether any is no number, take 1 to 4.
_MOST_LAUNCHES = 4
#: So many reads with so little between them are a row.
_LEAST_READS = 3


class Read(msgspec.Struct, frozen=True):
    """One read: indices into its rank's calls."""

    first: int  # of the calls that are for this read alone; that of the copy where no more than that is known
    copy: int
    wait: int
    follows: bool = False  # another one in a row: all that the host does from that one on is for this one

    def calls(self) -> range:
        """Return the indices of the calls that are for this read alone."""
        return range(self.first, self.wait + 1)


def reads_of(graph: Graph, rank: int) -> list[Read]:
    """Return a rank's reads, in order; those of a row begin with what computes their values."""
    calls = graph.calls[rank]
    waiting = [at for at, call in enumerate(calls) if call.awaits >= 0 and not call.room]  # one of many
    found = [
        Read(at, at, at) if _copies_and_waits(graph, calls[at]) else Read(at - 1, at - 1, at)
        for at in waiting
        if _copies_and_waits(graph, calls[at]) or (at and _is_read(graph, calls, at))
    ]
    result: list[Read] = []
    for row in _rows(graph, calls, found):
        if len(row) < _LEAST_READS:
            result += row
            continue
        following = [Read(before.wait + 1, one.copy, one.wait, True) for before, one in pairwise(row)]
        result += [_like(graph, calls, row[0], following[0]), *following]
    return result


def read_activities(graph: Graph, rank: int) -> set[int]:
    """Return the activities of a rank that are for its reads alone."""
    calls = graph.calls[rank]
    return {calls[at].launches for read in reads_of(graph, rank) for at in read.calls() if calls[at].launches >= 0}


def _copies_and_waits(graph: Graph, call: HostCall) -> bool:
    """Whether a call copies to the host, and returns when the copy is through."""
    return 0 <= call.launches == call.awaits and not call.room and _is_to_host(graph, call.awaits)


def _is_to_host(graph: Graph, at: int) -> bool:
    node = graph.activities[at]
    return node.kind == COPY and copies_to_host(node.name)


def _is_read(graph: Graph, calls: Sequence[HostCall], at: int) -> bool:
    """Whether the call at a place waits for the copy to the host that the call before it launched."""
    wait, before = calls[at], calls[at - 1]
    if wait.launches >= 0 or wait.room or wait.awaits < 0 or before.launches != wait.awaits:
        return False
    return before.thread == wait.thread and _is_to_host(graph, wait.awaits)


def _rows(graph: Graph, calls: Sequence[HostCall], found: Sequence[Read]) -> Iterator[list[Read]]:
    """Yield the reads in stretches between whose members there is no more than what computes a value."""
    row: list[Read] = []
    for read in found:
        if row and not _computes_a_value(graph, calls, row[-1].wait + 1, read):
            yield row
            row = []
        row.append(read)
    if row:
        yield row


def _computes_a_value(graph: Graph, calls: Sequence[HostCall], first: int, read: Read) -> bool:
    """Whether the calls from `first` to a read's copy are few launches, of its own thread, of what may compute it."""
    between = calls[first : read.copy]
    return len(between) <= _MOST_LAUNCHES and all(
        one.launches >= 0
        and one.thread == calls[read.wait].thread
        and _may_compute_a_value(graph.activities[one.launches].kind, graph.activities[one.launches].name)
        for one in between
    )


def _like(graph: Graph, calls: Sequence[HostCall], read: Read, following: Read) -> Read:
    """Return the first read of a row, which begins with the same launches as the one after it."""
    first = read.copy
    for at in range(following.copy - 1, following.first - 1, -1):
        before = calls[first - 1] if first else None
        if before is None or before.launches < 0:
            break
        if graph.activities[before.launches].name != graph.activities[calls[at].launches].name:
            break
        first -= 1
    return replace(read, first=first)


@lru_cache(maxsize=4096)
def _may_compute_a_value(kind: int, name: str) -> bool:
    return kind != COMMUNICATION and kind_of(name) not in MULTIPLYING
