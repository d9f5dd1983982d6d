"""Waiting and transfer: from when on a collective's data could be there, on each rank.

For all_reduce, all_gather, reduce_scatter, all_to_all and barrier that is when the last member arrives; for scatter
when the root does; for gather, at the root, when the last does; for a send or receive when the partner does. Who sends
in a scatter or a gather is not done before who receives has come, unless it leaves the data in a buffer, and then ends
before that one comes: of those that arrive before its own end, the last one counts. The data of a broadcast or a reduce
pass through every member of a ring: of those that arrive before one's own end, the last one counts (and for a broadcast
the root, for a reduce at its root all). A member that comes after one's own end held up nothing. So a broadcast or a
reduce is told even where a trace without shapes does not say which rank is its root: nobody has the root's data before
it has begun, and the root of a reduce is not done before all have. gloo's record of a send lasts until somebody waits
for it, long after its partner has the data: such a one is waiting, and the receive alone tells the transfer. On copy
engines a rank has come when its device has nothing else left to do, or else with its first copy: of two that come with
theirs, either may be the one that is waited for.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from scalescope.records.operations import FROM_ROOT, PAIRWISE, SYMMETRIC, THROUGH_MEMBERS, TO_ROOT
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.ranks.matching import Match
from scalescope.scaling.trace.intervals import EMPTY, Intervals

#: A send that outlives its receive by so much is kept open by its caller; clocks and hosts held up differ by less.
_KEPT_OPEN_NS = 5_000_000


class MatchedWait(msgspec.Struct, kw_only=True):
    """When a match's data could be there, on each rank, in ns on that rank's own clock."""

    ready: dict[int, int]  # between the member's start and its end; waiting before, transfer after
    awaited: dict[int, int]  # by rank: whom it waited for, the last to arrive of those that count
    last: int  # the last to arrive


def wait_of(
    match: Match, collectives: Mapping[int, Sequence[RankCollective]], offsets: Mapping[int, int] | None = None
) -> MatchedWait | None:
    """Return when each member's data could be there; None where that cannot be told (members missing, root unknown)."""
    if match.missing is not None:
        return None
    shift = offsets or {}
    members = {rank: collectives[rank][index] for rank, index in match.members.items()}
    arrival = {rank: one.start + shift.get(rank, 0) for rank, one in members.items()}
    last = _last_of(arrival, arrival)
    operation = next((one.operation for one in members.values() if one.operation is not None), None)
    due: dict[int, int]
    awaited = dict.fromkeys(members, last)
    by_copies = any(one.by_copies for one in members.values())
    if by_copies and _come_together(arrival, last):
        awaited = {rank: rank for rank in members}
    if len(members) == 1 or by_copies or operation in SYMMETRIC or operation in PAIRWISE:
        due = dict.fromkeys(members, arrival[last])
    elif operation in FROM_ROOT or operation in TO_ROOT:
        root = _root(members)
        end = {rank: one.end + shift.get(rank, 0) for rank, one in members.items()}
        if operation in THROUGH_MEMBERS:
            awaited = {rank: _last_before(end[rank], arrival, root, rank, operation) for rank in members}
        elif root is None:
            return None
        elif operation in FROM_ROOT:
            awaited = dict.fromkeys(members, root)
            awaited[root] = _last_of(arrival, {rank for rank, at in arrival.items() if at < end[root]} | {root})
        else:
            sent_to = {rank: {rank, root} if arrival[root] < end[rank] else {rank} for rank in members}
            awaited = {rank: last if rank == root else _last_of(arrival, sent_to[rank]) for rank in members}
        due = {rank: arrival[awaited[rank]] for rank in members}
    else:
        return None
    ready = {rank: min(max(due[rank] - shift.get(rank, 0), one.start), one.end) for rank, one in members.items()}
    if operation in PAIRWISE and len(members) == 2:
        received = min(one.end + shift.get(rank, 0) for rank, one in members.items())
        for rank, one in members.items():
            if one.end + shift.get(rank, 0) > received + max(_KEPT_OPEN_NS, received - arrival[last]):
                ready[rank] = one.end
    return MatchedWait(ready=ready, awaited=awaited, last=last)


def _come_together(arrival: Mapping[int, int], last: int) -> bool:
    """Tell whether another rank comes nearer to the last one than to the first: which of them is late is not told."""
    latest = arrival[last]
    others = [at for rank, at in arrival.items() if rank != last]
    return bool(others) and len(others) > 1 and latest - max(others) < (latest - min(others)) / 2


def _last_before(end: int, arrival: Mapping[int, int], root: int | None, rank: int, operation: str | None) -> int:
    """Return the last member to arrive before a rank's own end; at least the root of a broadcast, all at a reduce's."""
    if operation in TO_ROOT and rank == root:
        counting = set(arrival)
    else:
        counting = {other for other, at in arrival.items() if at < end} | {rank}
        if operation in FROM_ROOT and root is not None:
            counting.add(root)
    return _last_of(arrival, counting)


def _last_of(arrival: Mapping[int, int], ranks: Iterable[int]) -> int:
    return max(ranks, key=lambda rank: (arrival[rank], rank))


def _root(members: Mapping[int, RankCollective]) -> int | None:
    """Return the global rank of the root; traces give its rank within the group."""
    for one in members.values():
        if one.root is not None:
            ranks = one.group_ranks or tuple(sorted(members))
            root = ranks[one.root] if one.root < len(ranks) else one.root
            return root if root in members else None
    return None


def wait_and_transfer(collectives: Sequence[RankCollective], ready: Mapping[int, int]) -> tuple[Intervals, Intervals]:
    """Return when one rank waits and when it transfers, not merged; `ready` by the collective's index, where known."""
    if not ready:
        return EMPTY, EMPTY
    index = sorted(ready)
    start = np.array([collectives[at].start for at in index], np.int64)
    end = np.array([collectives[at].end for at in index], np.int64)
    until = np.array([ready[at] for at in index], np.int64)
    return Intervals(start, until), Intervals(until, end)
