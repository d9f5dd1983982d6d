"""gloo's records name no process group: the threads that run them tell it, and what other ranks run at the time."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from scalescope.scaling.rank.collective import ListedGroup, RankCollective
from scalescope.scaling.rank.roles import Role
from scalescope.scaling.ranks.gloo import groups_of_threads
from scalescope.scaling.ranks.gloo.groups_of_threads import name_groups
from scalescope.scaling.ranks.matching import match_collectives
from scalescope.scaling.ranks.summary import RankSummary, summarise

DATA = Path(__file__).parent / "data"
Ranks = tuple[int, ...]
Spans = dict[Ranks, tuple[int, int]]
EVERYBODY, LEFT, RIGHT, EVEN, ODD = (0, 1, 2, 3), (0, 1), (2, 3), (0, 2), (1, 3)
DATA_PARALLEL = (EVERYBODY, EVEN, ODD)
#: A mesh of two by two: tensor parallel in the rows, and data parallel in the columns.
MESH = (LEFT, RIGHT, EVEN, ODD)
AT_ODD_TIMES: Spans = {LEFT: (20, 25), RIGHT: (30, 35), EVEN: (50, 55), ODD: (60, 65)}
AT_ONCE: Spans = {LEFT: (20, 30), RIGHT: (20, 30), EVEN: (50, 60), ODD: (50, 60)}
STEP = 100


def role_of(group: Ranks) -> Role:
    return "dp" if group in DATA_PARALLEL else "tp"


def ranks_with(
    spans: Spans, steps: int = 3, late: int = 2, threads: int = 2,
    listed: tuple[Ranks, ...] = (EVERYBODY, LEFT, RIGHT), operations: dict[Ranks, str] | None = None,
) -> dict[int, RankSummary]:  # fmt: skip
    """Four ranks on one host: of each group, a collective at this time of a step; one rank begins them late.

    A rank's threads have numbers of its own, in the order of its groups, and those of a group take turns.
    """
    like = summarise(sorted((DATA / "cpu_ddp_n2").rglob("*.json*"))[0])
    found = {}
    for rank in EVERYBODY:
        groups = [group for group in listed if rank in group]
        own = [
            RankCollective(
                start=step * STEP + begin + (end - begin - 1) * (rank == late),
                end=step * STEP + end + rank % 2,
                operation=(operations or {}).get(group, "all_reduce"),
                stream=1000 * rank + 10 * place + step % threads,
            )
            for place, group in enumerate(groups)
            if group in spans
            for begin, end in [spans[group]]
            for step in range(steps)
        ]
        own.sort(key=lambda one: one.start)
        known = tuple(ListedGroup(str(group), group, role_of(group)) for group in groups)
        found[rank] = replace(like, rank=rank, collectives=own, groups=known, host="one")
    return found


def test_the_groups_of_gloos_collectives_are_told_by_threads_and_by_what_runs_at_once() -> None:
    """Before, none of them was matched, and a rank for which the others waited was not found."""
    summaries = ranks_with({EVERYBODY: (10, 60), LEFT: (70, 75), RIGHT: (78, 84)})
    name_groups(summaries)
    for rank, own in summaries.items():
        half = LEFT if rank in LEFT else RIGHT
        assert {one.group_ranks for one in own.collectives if one.start % STEP < 65} == {EVERYBODY}
        assert {one.group_ranks for one in own.collectives if one.start % STEP >= 65} == {half}
    matches = match_collectives({rank: own.collectives for rank, own in summaries.items()})
    assert all(one.missing is None for one in matches)
    assert sorted(len(one.members) for one in matches) == [2] * 6 + [4] * 3


def are_named(summaries: dict[int, RankSummary]) -> bool:
    """Name the groups of a mesh, and tell whether they are: all of them, or none."""
    name_groups(summaries)
    found = {
        (one.group, one.group_ranks, one.role, rank)
        for rank, own in summaries.items() for one in own.collectives if one.group is not None
    }  # fmt: skip
    told = {(str(of), of, role_of(of), rank) for of in MESH for rank in of}
    assert found in (told, set())
    return bool(found)


@pytest.mark.parametrize("backwards", [False, True])
def test_of_a_mesh_what_does_not_run_at_once_is_not_of_one_group(backwards: bool) -> None:
    turned: Spans = {group: (95 - end, 95 - begin) for group, (begin, end) in AT_ODD_TIMES.items()}
    assert are_named(ranks_with(turned if backwards else AT_ODD_TIMES, listed=(EVERYBODY, *MESH)))


def test_what_is_of_another_kind_is_not_of_one_group() -> None:
    other: dict[Ranks, str] = {RIGHT: "broadcast", ODD: "broadcast"}
    assert not are_named(ranks_with(AT_ONCE, listed=(EVERYBODY, *MESH)))
    assert are_named(ranks_with(AT_ONCE, listed=(EVERYBODY, *MESH), operations=other))


def test_threads_are_of_groups_in_the_order_in_which_these_were_made() -> None:
    """What rows and columns each run at once may be the other way round, but for the threads' numbers."""
    assert are_named(ranks_with(AT_ONCE, listed=MESH))


def test_more_threads_than_torch_makes_are_dealt_out_all_the_same() -> None:
    assert are_named(ranks_with(AT_ODD_TIMES, listed=MESH, threads=3))


def test_two_groups_of_the_same_ranks_and_a_ranks_own_make_no_doubt() -> None:
    summaries = ranks_with(AT_ODD_TIMES, listed=MESH)
    for rank, own in summaries.items():
        again, alone = ListedGroup("again", own.groups[1].ranks, None), ListedGroup("alone", (rank,), None)
        summaries[rank] = replace(own, groups=(own.groups[0], alone, own.groups[1], again))
    assert are_named(summaries)


@pytest.mark.parametrize("operation", [None, "send_recv"])
def test_what_not_all_of_a_group_run_leaves_groups_unknown(operation: str | None) -> None:
    summaries = ranks_with(AT_ODD_TIMES, listed=MESH)
    for rank in LEFT:
        summaries[rank].collectives[0].operation = operation
    assert not are_named(summaries)


@pytest.mark.parametrize("limit", ["_MOST_WAYS", "_MOST_RANKS", "_MOST_TRIES"])
def test_what_would_take_too_long_to_try_stays_unknown(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_of_threads, limit, 2)
    assert not are_named(ranks_with(AT_ODD_TIMES, listed=MESH))


def test_where_more_than_one_way_is_possible_groups_stay_unknown() -> None:
    """Each rank runs one collective a step at the same time: it may be everybody's, or each half's."""
    summaries = ranks_with({EVERYBODY: (10, 60)}, late=9)
    name_groups(summaries)
    assert all(one.group is None for own in summaries.values() for one in own.collectives)


def test_groups_of_ranks_on_several_hosts_stay_unknown() -> None:
    """Their clocks are not known yet, and without them nobody tells what ran at once."""
    summaries = ranks_with({EVERYBODY: (10, 60), LEFT: (70, 75), RIGHT: (78, 84)})
    name_groups({rank: replace(own, host=str(rank // 2)) for rank, own in summaries.items()})
    assert all(one.group is None for own in summaries.values() for one in own.collectives)
