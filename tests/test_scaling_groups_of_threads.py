"""gloo's records name no process group: the threads that run them tell it, and what other ranks run at the time."""

from dataclasses import replace
from pathlib import Path

from scalescope.scaling.rank.collective import ListedGroup, RankCollective
from scalescope.scaling.ranks.groups_of_threads import name_groups
from scalescope.scaling.ranks.matching import match_collectives
from scalescope.scaling.ranks.summary import RankSummary, summarise

DATA = Path(__file__).parent / "data"
EVERYBODY, LEFT, RIGHT = (0, 1, 2, 3), (0, 1), (2, 3)
STEP = 100


def ranks_with(
    spans: dict[tuple[int, ...], list[tuple[int, int]]], steps: int = 3, late: int = 2
) -> dict[int, RankSummary]:
    """Four ranks on one host: of each group, collectives at these times of a step; one rank begins them late.

    A rank's threads have numbers of its own, in the order of its groups, and the two of a group take turns.
    """
    like = summarise(sorted((DATA / "cpu_ddp_n2").rglob("*.json*"))[0])
    found = {}
    for rank in EVERYBODY:
        groups = [EVERYBODY, LEFT if rank in LEFT else RIGHT]
        own = [
            RankCollective(
                start=step * STEP + begin + (end - begin - 1) * (rank == late),
                end=step * STEP + end + rank % 2,
                operation="all_reduce",
                stream=1000 * rank + 10 * place + step % 2,
            )
            for place, group in enumerate(groups)
            for begin, end in spans.get(group, [])
            for step in range(steps)
        ]
        own.sort(key=lambda one: one.start)
        listed = tuple(ListedGroup(str(EVERYBODY if len(group) > 2 else group), group, None) for group in groups)
        found[rank] = replace(like, rank=rank, collectives=own, groups=listed, host="one")
    return found


def test_the_groups_of_gloos_collectives_are_told_by_threads_and_by_what_runs_at_once() -> None:
    """Before, none of them was matched, and a rank for which the others waited was not found."""
    summaries = ranks_with({EVERYBODY: [(10, 60)], LEFT: [(70, 75)], RIGHT: [(78, 84)]})
    name_groups(summaries)
    for rank, own in summaries.items():
        half = LEFT if rank in LEFT else RIGHT
        assert {one.group_ranks for one in own.collectives if one.start % STEP < 65} == {EVERYBODY}
        assert {one.group_ranks for one in own.collectives if one.start % STEP >= 65} == {half}
    matches = match_collectives({rank: own.collectives for rank, own in summaries.items()})
    assert all(one.missing is None for one in matches)
    assert sorted(len(one.members) for one in matches) == [2] * 6 + [4] * 3


def test_where_more_than_one_way_is_possible_groups_stay_unknown() -> None:
    """Each rank runs one collective a step at the same time: it may be everybody's, or each half's."""
    summaries = ranks_with({EVERYBODY: [(10, 60)]}, late=9)
    name_groups(summaries)
    assert all(one.group is None for own in summaries.values() for one in own.collectives)


def test_groups_of_ranks_on_several_hosts_stay_unknown() -> None:
    """Their clocks are not known yet, and without them nobody tells what ran at once."""
    summaries = ranks_with({EVERYBODY: [(10, 60)], LEFT: [(70, 75)], RIGHT: [(78, 84)]})
    name_groups({rank: replace(own, host=str(rank // 2)) for rank, own in summaries.items()})
    assert all(one.group is None for own in summaries.values() for one in own.collectives)
