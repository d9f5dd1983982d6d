"""Which collectives of different ranks are the same one.

Where traces carry a sequence number (`Seq`), members share it. Else each group's collectives are aligned as sequences:
the ranks' windows are cut at different places, so pairing from the start mis-pairs everything after one extra
collective (alignment.py).

Transfers that were launched before a window say nothing of themselves, not even which way they go, and each rank's
window begins at another of them: two ranks' are paired in order, backwards from the first that both describe.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from scalescope.records.operations import PAIRWISE
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.ranks.alignment import align, compatible

Missing = Literal["window", "member", "trace"]
#: What a group is called that neither a record nor what stands beside it names.
NO_GROUP = "?"


class Match(msgspec.Struct, kw_only=True):
    """One collective: its members by rank (indices into that rank's list), and what is missing of it."""

    group: str
    group_size: int | None
    members: dict[int, int]
    #: None: complete. "window": cut off at the edge of a rank's window. "member": a rank lacks it amid others.
    #: "trace": a rank of the group has no trace here, or the group's ranks are not known.
    missing: Missing | None = None
    missing_ranks: tuple[int, ...] = ()


class _Group(msgspec.Struct, frozen=True):
    """What collectives have in common that can only be matched among themselves."""

    name: str
    ranks: tuple[int, ...]
    pair: tuple[int, int] | None = None  # of point-to-point transfers


def share_names(collectives: Mapping[int, Sequence[RankCollective]]) -> None:
    """Call groups by one name, in place, of whose ranks each has one group of those ranks, under names of their own.

    A name is what a process counts or chooses; who takes part is what a group is.
    """
    names: dict[tuple[int, ...], dict[int, set[str | None]]] = {}
    for rank, own in collectives.items():
        told: dict[tuple[int, ...], set[str | None]] = {}
        for one in own:
            told.setdefault(one.group_ranks, set()).add(one.group)
        for ranks, named in told.items():
            if rank in ranks:
                names.setdefault(ranks, {})[rank] = named
    for ranks, by_rank in names.items():
        all_names = {name for own in by_rank.values() for name in own}
        if len(all_names) < 2 or None in all_names or any(len(own) > 1 for own in by_rank.values()):
            continue
        (name,) = by_rank[min(by_rank)]
        for rank in by_rank:
            for one in collectives[rank]:
                if one.group_ranks == ranks:
                    one.group = name


def match_collectives(
    collectives: Mapping[int, Sequence[RankCollective]], offsets: Mapping[int, int] | None = None
) -> list[Match]:
    """Return the matches of all groups, ascending by when their first member starts.

    `offsets` (ns, by rank) are added to a rank's times to bring them onto one clock; none for ranks of one host.
    """
    shift = offsets or {}
    rank_sets = _rank_sets(collectives)
    groups: dict[_Group, dict[int, list[int]]] = {}
    for rank in sorted(collectives):
        for index, one in enumerate(collectives[rank]):
            groups.setdefault(_group_of(one, rank, rank_sets), {}).setdefault(rank, []).append(index)
    silent = _without_way(groups, collectives)
    found: list[tuple[int, Match]] = []
    for group, by_rank in groups.items():
        for rank, indices in by_rank.items():
            indices.sort(key=lambda index, own=collectives[rank]: own[index].start)  # type: ignore[misc]
        slots = align(collectives, by_rank, shift)
        expected = _expected(group, by_rank, collectives)
        matches = [
            Match(
                group=group.name,
                group_size=_size(group, expected, slot.model),
                members=dict(sorted(slot.members.items())),
            )
            for slot in slots
        ]
        _say_what_is_missing(matches, expected, set(collectives))
        found.extend((slot.start, match) for slot, match in zip(slots, matches, strict=True))
    for group, by_rank in silent.items():
        found = _with_silent(found, group, by_rank, collectives, shift)
    found.sort(key=lambda item: item[0])
    return [match for _, match in found]


def _without_way(
    groups: dict[_Group, dict[int, list[int]]], collectives: Mapping[int, Sequence[RankCollective]]
) -> dict[_Group, dict[int, list[int]]]:
    """Take out of the groups, and return, transfers that do not tell their way, where others of their group do."""
    told = {(group.name, group.ranks) for group in groups if group.pair is not None}
    found: dict[_Group, dict[int, list[int]]] = {}
    for group in [group for group in groups if group.pair is None and (group.name, group.ranks) in told]:
        for rank, indices in groups[group].items():
            silent = [index for index in indices if collectives[rank][index].operation in PAIRWISE]
            if silent:
                found.setdefault(group, {})[rank] = silent
                groups[group][rank] = [index for index in indices if index not in set(silent)]
        groups[group] = {rank: indices for rank, indices in groups[group].items() if indices}
        if not groups[group]:
            del groups[group]
    return found


def _with_silent(
    found: list[tuple[int, Match]],
    group: _Group,
    by_rank: Mapping[int, Sequence[int]],
    collectives: Mapping[int, Sequence[RankCollective]],
    shift: Mapping[int, int],
) -> list[tuple[int, Match]]:
    """Return the matches with a group's silent transfers among them: paired in order where two ranks have them.

    What one rank describes before the first transfer that both describe is one of those that the other is silent of.
    """

    def start(rank: int, index: int) -> int:
        return collectives[rank][index].start + shift.get(rank, 0)

    def single(rank: int, index: int) -> tuple[int, Match]:
        others = tuple(other for other in group.ranks if other != rank)
        missing: Missing = "window" if collectives.keys() >= set(group.ranks) else "trace"
        match = Match(group=group.name, group_size=2, members={rank: index}, missing=missing, missing_ranks=others)
        return start(rank, index), match

    if len(group.ranks) != 2 or not collectives.keys() >= set(group.ranks):
        return [*found, *(single(rank, index) for rank, indices in by_rank.items() for index in indices)]
    own = [item for item in found if item[1].group == group.name and _is_transfer(item[1], collectives)]
    whole = [match for _, match in own if match.missing is None]
    first = {rank: min((start(rank, match.members[rank]) for match in whole), default=None) for rank in group.ranks}
    alone = [
        item for item in own for rank, index in item[1].members.items()
        if len(item[1].members) == 1 and ((limit := first[rank]) is None or start(rank, index) < limit)
    ]  # fmt: skip
    queues = {rank: list(by_rank.get(rank, ())) for rank in group.ranks}
    for _, match in alone:
        for rank, index in match.members.items():
            queues[rank].append(index)
    for rank, queue in queues.items():
        queue.sort(key=lambda index, rank=rank: start(rank, index))  # type: ignore[misc]
    left, right = group.ranks
    kept = [item for item in found if item not in alone]
    while queues[left] and queues[right]:
        members = {left: queues[left][-1], right: queues[right][-1]}
        if not _can_be_one([collectives[rank][index] for rank, index in members.items()]):
            break
        kept.append((max(start(rank, queues[rank].pop()) for rank in group.ranks), Match(
            group=group.name, group_size=2, members=members)))  # fmt: skip
    return [*kept, *(single(rank, index) for rank, queue in queues.items() for index in queue)]


def _is_transfer(match: Match, collectives: Mapping[int, Sequence[RankCollective]]) -> bool:
    return any(collectives[rank][index].operation in PAIRWISE for rank, index in match.members.items())


def _can_be_one(ends: Sequence[RankCollective]) -> bool:
    """Tell whether two ends can be of one transfer, of which one at least is silent."""
    return any(one.source is None for one in ends) and compatible(*ends)


def _rank_sets(collectives: Mapping[int, Sequence[RankCollective]]) -> dict[str, set[tuple[int, ...]]]:
    found: dict[str, set[tuple[int, ...]]] = {}
    for own in collectives.values():
        for one in own:
            if one.group is not None and one.group_ranks:
                found.setdefault(one.group, set()).add(one.group_ranks)
    return found


def _group_of(one: RankCollective, rank: int, rank_sets: Mapping[str, set[tuple[int, ...]]]) -> _Group:
    name, ranks = one.group or NO_GROUP, one.group_ranks
    known = rank_sets.get(name, set())
    if not ranks and len(known) == 1:
        ranks = next(iter(known))
    if len(known) > 1:
        # several sets of ranks under one name, as the rows of a device mesh have: the name alone is ambiguous
        name = f"{name}:{','.join(str(member) for member in ranks)}"
    pair = None
    if one.operation in PAIRWISE and one.source is not None and one.destination is not None:
        pair = (one.source, one.destination)  # a way by itself: what comes back may begin before what goes
    return _Group(name, ranks, pair)


def _expected(
    group: _Group, by_rank: Mapping[int, Sequence[int]], collectives: Mapping[int, Sequence[RankCollective]]
) -> tuple[int, ...] | None:
    """Return the ranks that a whole collective of the group has, None where that is not known."""
    if group.pair is not None:
        # source and destination count within the group
        inside = all(member < len(group.ranks) for member in group.pair)
        return tuple(group.ranks[member] for member in group.pair) if inside else group.pair
    if group.ranks:
        return group.ranks
    sizes = {collectives[rank][indices[0]].group_size for rank, indices in by_rank.items()}
    if sizes == {len(by_rank)}:
        return tuple(sorted(by_rank))
    return None


def _size(group: _Group, expected: tuple[int, ...] | None, model: RankCollective) -> int | None:
    return len(expected) if expected else (len(group.ranks) or model.group_size)


def _say_what_is_missing(matches: list[Match], expected: tuple[int, ...] | None, traced: set[int]) -> None:
    """Mark incomplete matches. What lacks a member before the first or after the last that has it was cut off there."""
    if expected is None:
        for match in matches:
            match.missing = "trace"
        return
    without_trace = tuple(rank for rank in expected if rank not in traced)
    first = {rank: next((at for at, match in enumerate(matches) if rank in match.members), None) for rank in expected}
    last = {
        rank: max((at for at, match in enumerate(matches) if rank in match.members), default=-1) for rank in expected
    }
    for at, match in enumerate(matches):
        lacking = tuple(rank for rank in expected if rank not in match.members)
        if not lacking:
            continue
        match.missing_ranks = lacking
        if without_trace:
            match.missing = "trace"
            continue
        cut = all((begin := first[rank]) is None or at < begin or at > last[rank] for rank in lacking)
        match.missing = "window" if cut else "member"
