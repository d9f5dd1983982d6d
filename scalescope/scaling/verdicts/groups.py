"""Communication by process group: how much of it there is, and how much is exposed, on the mean rank in a step.

An instant in which collectives of two groups run counts for both, so exposed times of groups may add up to more than
the partition's. Whether a group lies inside one host the headers tell, where every rank of it is traced.
"""

from collections.abc import Mapping, Sequence

import msgspec

from scalescope.scaling.answer_rows import GroupRow
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.ranks.summary import RankSummary
from scalescope.scaling.trace.intervals import Intervals, intersect, intervals, length, union

_Spans = list[tuple[int, int]]


class _OfRank(msgspec.Struct):
    """One rank's collectives of one group: when they wait, transfer, or run without it being known which."""

    waits: _Spans = msgspec.field(default_factory=list)
    transfers: _Spans = msgspec.field(default_factory=list)
    unsplit: _Spans = msgspec.field(default_factory=list)
    calls: int = 0
    sent: int = 0


class _Sums(msgspec.Struct):
    """One group's figures, summed over ranks, each a step of its rank."""

    role: str | None = None
    size: int | None = None
    ranks: set[int] = msgspec.field(default_factory=set)
    listed: bool = False  # the trace lists its ranks
    calls: float = 0.0
    bytes: float = 0.0
    communication: float = 0.0  # ns, like the rest
    transfer: float = 0.0
    wait: float = 0.0
    unsplit: float = 0.0


def group_rows(summaries: Mapping[int, RankSummary], ready: Mapping[int, Mapping[int, int]]) -> list[GroupRow]:
    """Return a row a process group, most exposed first; `ready`: by rank and collective, when its data could move."""
    found: dict[str, _Sums] = {}
    counted = [rank for rank, one in summaries.items() if one.shares is not None]
    for rank in counted:
        _add_rank(found, rank, summaries[rank], ready.get(rank, {}))
    hosts = {rank: one.host for rank, one in summaries.items()}
    rows = [_row(name, sums, len(counted), hosts) for name, sums in found.items()]
    return sorted(rows, key=lambda row: (-row.exposed_ms, row.group))


def _add_rank(found: dict[str, _Sums], rank: int, summary: RankSummary, ready: Mapping[int, int]) -> None:
    assert summary.shares is not None
    windows = summary.shares.windows
    first, last, steps = int(windows.edges[0]), int(windows.edges[-1]), max(1, len(windows))
    own: dict[str, _OfRank] = {}
    for index, one in enumerate(summary.collectives):
        if one.end <= first or one.start >= last:
            continue
        _add(own.setdefault(one.group or "?", _OfRank()), one, ready.get(index))
        sums = found.setdefault(one.group or "?", _Sums())
        sums.role = sums.role or one.role
        sums.size = one.group_size or sums.size
        if one.group_ranks and not sums.listed:
            sums.ranks.update(one.group_ranks)
            sums.listed = True
        sums.ranks.add(rank)
    for name, spans in own.items():
        sums, exposed = found[name], summary.shares.exposed
        whole = union(intervals([*spans.waits, *spans.transfers, *spans.unsplit]))
        inside = intersect(whole, Intervals(windows.edges[:1], windows.edges[-1:]))
        sums.communication += length(inside) / steps
        sums.transfer += length(intersect(exposed, union(intervals(spans.transfers)))) / steps
        sums.wait += length(intersect(exposed, union(intervals(spans.waits)))) / steps
        sums.unsplit += length(intersect(exposed, union(intervals(spans.unsplit)))) / steps
        sums.calls += spans.calls / steps
        sums.bytes += spans.sent / steps


def _add(own: _OfRank, one: RankCollective, ready: int | None) -> None:
    own.calls += 1
    own.sent += one.bytes or 0
    if ready is None:
        own.unsplit.append((one.start, one.end))
        return
    own.waits.append((one.start, ready))
    own.transfers.append((ready, one.end))


def _row(name: str, sums: _Sums, ranks: int, hosts: Mapping[int, str]) -> GroupRow:
    known = [hosts.get(rank, "") for rank in sums.ranks]
    traced = bool(known) and all(known) and (sums.size is None or len(sums.ranks) >= sums.size)
    return GroupRow(
        group=name,
        role=sums.role,
        group_size=sums.size,
        inside_host=len(set(known)) == 1 if traced else None,
        calls=sums.calls / ranks,
        bytes=sums.bytes / ranks,
        communication_ms=sums.communication / ranks / 1e6,
        exposed_transfer_ms=sums.transfer / ranks / 1e6,
        exposed_wait_ms=sums.wait / ranks / 1e6,
        exposed_unsplit_ms=sums.unsplit / ranks / 1e6,
    )


def named_roles(rows: Sequence[GroupRow], roles: Mapping[str, str]) -> list[GroupRow]:
    """Return the rows with the roles that a user gives to groups, by the groups' names."""
    return [msgspec.structs.replace(row, role=roles.get(row.group, row.role)) for row in rows]


def by_role(rows: Sequence[GroupRow]) -> list[GroupRow]:
    """Return the rows with those of one role as one: a rank has one group of a role. Groups without one stay alone."""
    merged: dict[str, GroupRow] = {}
    for row in rows:
        key = row.role or f"group {row.group}"
        if key not in merged:
            merged[key] = row
            continue
        first = merged[key]
        sums = {name: getattr(first, name) + getattr(row, name) for name in _ADD_UP}
        same_host = first.inside_host if first.inside_host == row.inside_host else None
        names = f"{first.group}, {row.group}"
        merged[key] = msgspec.structs.replace(first, group=names, inside_host=same_host, **sums)
    return sorted(merged.values(), key=lambda row: -row.exposed_ms)


_ADD_UP = ("calls", "bytes", "communication_ms", "exposed_transfer_ms", "exposed_wait_ms", "exposed_unsplit_ms")
