"""Which process group a collective on CPUs is of, where its record does not say: gloo's name none.

A process group of gloo runs its collectives on threads of its own, two of them, and is made with them: of one rank,
threads with higher numbers are of groups that were made later, which is the order in which the header lists them. Of
the ways to deal a rank's threads out so, those are left in which all members of a group ran as many collectives of the
same kinds, each beside the others': a member is done no sooner than the last one has begun. Where exactly one way is
left, that is it. Where several are, the groups stay unknown.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement

from scalescope.records.operations import PAIRWISE
from scalescope.scaling.rank.collective import ListedGroup, RankCollective
from scalescope.scaling.ranks.summary import RankSummary

#: A rank with more ways to deal out its threads is not tried, nor are more ranks, nor more pairs of ways.
_MOST_WAYS, _MOST_RANKS, _MOST_TRIES = 300, 64, 200_000

#: The threads of one group, as torch makes them.
_THREADS = 2

#: A group's ranks.
_Members = tuple[int, ...]
#: One way to deal out a rank's threads: what each group then ran, ascending by start, by the group's ranks.
_Way = dict[_Members, list[RankCollective]]


def name_groups(summaries: Mapping[int, RankSummary]) -> None:
    """Give the collectives of a job's ranks their groups, in place, where one way alone to deal them out is possible.

    Only of ranks on one host: others' clocks are not known yet.
    """
    nameless = {rank: [one for one in own.collectives if one.group is None] for rank, own in summaries.items()}
    ranks = [rank for rank, own in nameless.items() if own and summaries[rank].groups]
    if not 2 <= len(ranks) <= _MOST_RANKS or len({summaries[rank].host for rank in ranks}) > 1:
        return
    if any(one.operation is None or one.operation in PAIRWISE for rank in ranks for one in nameless[rank]):
        return  # what only two of a group take part in says nothing of the others
    ways: dict[int, list[_Way]] = {}
    for rank in ranks:
        ways[rank] = list(_ways(nameless[rank], summaries[rank].groups))
        if not ways[rank]:
            return
    found = _only_one(ways)
    for rank, way in found.items():
        listed = {group.ranks: group for group in reversed(summaries[rank].groups)}
        for members, own in way.items():
            for one in own:
                one.group, one.group_ranks, one.group_size = listed[members].name, members, len(members)
                one.role = listed[members].role


def _ways(collectives: Sequence[RankCollective], groups: Sequence[ListedGroup]) -> Iterator[_Way]:
    """Yield the ways to deal a rank's threads out to its groups, in order; none where there are too many."""
    threads: dict[int, list[RankCollective]] = {}
    for one in collectives:
        threads.setdefault(one.stream, []).append(one)
    members = [group.ranks for group in groups if len(group.ranks) > 1]
    dealt = list(combinations_with_replacement(range(len(members)), len(threads))) if len(members) < 8 else []
    if not 0 < len(dealt) <= _MOST_WAYS:
        return
    seen = set()
    usual = [places for places in dealt if max(map(places.count, places)) <= _THREADS]
    for places in usual or dealt:
        way: _Way = {}
        for thread, place in zip(sorted(threads), places, strict=True):
            way.setdefault(members[place], []).extend(threads[thread])
        same = tuple(members[place] for place in places)
        if same not in seen:
            seen.add(same)
            yield {group: sorted(own, key=lambda one: one.start) for group, own in way.items()}


def _only_one(ways: Mapping[int, Sequence[_Way]]) -> dict[int, _Way]:
    """Return the one choice of a way a rank in which all fit each other; {} where there is none, or another one."""
    ranks = list(ways)
    found: list[dict[int, _Way]] = []
    tries = 0

    def choose(chosen: dict[int, _Way]) -> bool:
        """Return whether to go on looking."""
        nonlocal tries
        if len(chosen) == len(ranks):
            found.append(dict(chosen))
            return len(found) < 2
        rank = ranks[len(chosen)]
        for way in ways[rank]:
            tries += len(chosen) + 1
            if tries > _MOST_TRIES:
                return False
            fits = all(_fit(rank, way, other, theirs) for other, theirs in chosen.items())
            if fits and not choose({**chosen, rank: way}):
                return False
        return True

    return found[0] if choose({}) and len(found) == 1 else {}


def _fit(rank: int, way: _Way, other: int, theirs: _Way) -> bool:
    """Tell whether two ranks can have run what these ways say, by the groups that both are in."""
    for members in {*way, *theirs}:
        if rank not in members or other not in members:
            continue
        mine, others = way.get(members, []), theirs.get(members, [])
        if len(mine) != len(others) or any(
            one.operation != two.operation or one.start > two.end or two.start > one.end
            for one, two in zip(mine, others, strict=True)
        ):
            return False
    return True
