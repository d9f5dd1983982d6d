"""Collectives of different ranks that are one and the same, found in real traces and in made-up ones."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scalescope.scaling.rank.collective import RankCollective, share_members
from scalescope.scaling.ranks.clocks import host_offsets
from scalescope.scaling.ranks.matching import Match, match_collectives, share_names
from scalescope.scaling.ranks.quality import judge
from scalescope.scaling.ranks.summary import RankSummary, summarise
from scalescope.scaling.ranks.waits import wait_of
from tests.gloo_traces import GlooJob, analysed

DATA = Path(__file__).parent / "data"


def read(name: str) -> dict[int, RankSummary]:
    summaries = [summarise(path) for path in sorted((DATA / name).glob("*.gz"))]
    return {one.rank: one for one in summaries if one.rank is not None}


def test_the_compiled_set_of_57_and_three_times_56_collectives_is_matched_by_overlap_not_by_order() -> None:
    ranks = {rank: one.collectives for rank, one in read("gpt_ddp_compile_n4").items()}
    assert [len(own) for own in ranks.values()] == [57, 56, 56, 56]
    matches = match_collectives(ranks)
    whole = [match for match in matches if match.missing is None]
    assert len(whole) == 56
    for match in whole:
        members = [ranks[rank][index] for rank, index in match.members.items()]
        assert len(members) == 4
        assert max(one.start for one in members) < min(one.end for one in members)
        assert len({one.elements for one in members if one.elements is not None}) <= 1
    (cut,) = [match for match in matches if match.missing is not None]
    assert cut.missing == "window" and cut.members == {0: 0} and cut.missing_ranks == (1, 2, 3)


def test_both_gloo_ranks_hold_the_same_collectives_with_the_operations_torch_called() -> None:
    ranks = {rank: one.collectives for rank, one in read("cpu_fsdp2_n2").items()}
    matches = match_collectives(ranks)
    assert all(match.missing is None for match in matches)
    operations = [ranks[0][match.members[0]].operation for match in matches]
    # gloo's own annotation calls a reduce_scatter an all_reduce
    assert set(operations) == {"all_gather", "reduce_scatter"}
    for match in matches:
        here, there = (ranks[rank][index] for rank, index in match.members.items())
        assert here.bytes == there.bytes and here.operation == there.operation


def one(start: int, end: int, **more: object) -> RankCollective:
    reported = {"operation": "all_reduce", "elements": 10, "group": "0", "group_ranks": (0, 1), "group_size": 2}
    return RankCollective(start=start, end=end, **(reported | more))  # type: ignore[arg-type]


def waits_of_three(spans: dict[int, tuple[int, int]], **more: object) -> tuple[dict[int, int], dict[int, int]]:
    """Return whom each of three ranks waits for in one collective of theirs, and for how long."""
    of_three = {"group_ranks": (0, 1, 2), "group_size": 3, **more}
    ranks = {rank: [one(start, end, **of_three)] for rank, (start, end) in spans.items()}
    wait = wait_of(Match(group="0", group_size=3, members=dict.fromkeys(ranks, 0)), ranks)
    assert wait is not None
    return dict(wait.awaited), {rank: wait.ready[rank] - spans[rank][0] for rank in ranks}


def test_ranks_share_one_object_for_the_ranks_of_a_group_whatever_they_change_between() -> None:
    world, pair = tuple(range(1000)), (0, 1)
    ranks = [[one(0, 1, group_ranks=(*members,)) for members in (world, pair, world, ())] for _ in range(3)]
    share_members(ranks)
    for own in ranks:
        assert [collective.group_ranks for collective in own] == [world, pair, world, ()]
        assert all(mine.group_ranks is first.group_ranks for mine, first in zip(own[:3], ranks[0][:3], strict=True))
    assert {world: 1}[ranks[0][0].group_ranks] == 1, "its hash is a tuple's"


def test_sequence_numbers_decide_against_overlap() -> None:
    left = [one(0, 100, sequence=1), one(200, 300, sequence=2)]
    right = [one(190, 290, sequence=1), one(400, 500, sequence=2)]
    assert [match.members for match in match_collectives({0: left, 1: right})] == [{0: 0, 1: 0}, {0: 1, 1: 1}]


def test_broadcasts_that_do_not_overlap_are_paired_between_the_all_reduces_around_them() -> None:
    def rank(shift: int) -> list[RankCollective]:
        small = {"operation": "broadcast", "elements": 3, "root": 0}
        return [one(0, 1_000), one(10_000 + shift, 10_500 + shift, **small), one(900_000, 901_000)]

    matches = match_collectives({0: rank(0), 1: rank(400_000)})
    assert [sorted(match.members.items()) for match in matches] == [[(0, i), (1, i)] for i in range(3)]
    broadcast = matches[1]
    wait = wait_of(broadcast, {0: rank(0), 1: rank(400_000)})
    assert wait is not None and wait.awaited == {0: 0, 1: 1}
    assert wait.ready == {0: 10_000, 1: 410_000}  # the root was there long before: no wait at all


@pytest.mark.parametrize(
    ("operation", "spans", "awaited", "waiting"),
    [
        ("broadcast", {0: (0, 50), 1: (20, 60), 2: (55, 70)}, {0: 1, 1: 2, 2: 2}, {0: 20, 1: 35, 2: 0}),
        ("broadcast", {0: (0, 10), 1: (30, 40), 2: (5, 12)}, {0: 2, 1: 1, 2: 2}, {0: 5, 1: 0, 2: 0}),
        ("reduce", {0: (0, 10), 1: (30, 40), 2: (5, 42)}, {0: 2, 1: 1, 2: 1}, {0: 5, 1: 0, 2: 25}),
    ],
)
def test_a_broadcast_whose_root_no_trace_tells_is_split_by_who_came_before_the_end(
    operation: str, spans: dict[int, tuple[int, int]], awaited: dict[int, int], waiting: dict[int, int]
) -> None:
    """Without record_shapes nobody says which rank sends DDP's buffers."""
    assert waits_of_three(spans, operation=operation, elements=None) == (awaited, waiting)


@pytest.mark.parametrize(
    ("operation", "spans", "awaited", "waiting"),
    [
        ("scatter", {0: (0, 45), 1: (40, 50), 2: (20, 46)}, {0: 1, 1: 0, 2: 0}, {0: 40, 1: 0, 2: 0}),
        ("scatter", {0: (0, 10), 1: (40, 50), 2: (20, 30)}, {0: 0, 1: 0, 2: 0}, {0: 0, 1: 0, 2: 0}),
        ("gather", {0: (30, 60), 1: (0, 40), 2: (50, 60)}, {0: 2, 1: 0, 2: 2}, {0: 20, 1: 30, 2: 0}),
        ("gather", {0: (30, 60), 1: (0, 10), 2: (50, 60)}, {0: 2, 1: 1, 2: 2}, {0: 20, 1: 0, 2: 0}),
    ],
)
def test_who_sends_in_a_scatter_or_a_gather_waits_for_who_receives_unless_it_is_done_before(
    operation: str, spans: dict[int, tuple[int, int]], awaited: dict[int, int], waiting: dict[int, int]
) -> None:
    """A rank that scattered the gradients of gathered features over gloo waited 25 ms a step for one that slept:
    36.5 ms of transfer, and 3.1 ms of waiting, stood in the table beneath a sentence that named the sleep.
    """
    assert waits_of_three(spans, operation=operation, root=0) == (awaited, waiting)


@pytest.mark.parametrize("operation", ["gather", "scatter"])
def test_what_the_root_alone_waits_for_or_sends_is_not_split_without_it(operation: str) -> None:
    ranks = {rank: [one(0, 10 + rank, operation=operation)] for rank in (0, 1)}
    assert wait_of(Match(group="0", group_size=2, members={0: 0, 1: 0}), ranks) is None


def test_two_broadcasts_in_a_row_are_paired_by_order_though_the_ones_first_runs_beside_the_others_second() -> None:
    """As DDP's buffers are: gloo's two threads begin them when the host has cores for them."""

    def rank(at: int, *broadcasts: tuple[int, int]) -> list[RankCollective]:
        small = {"operation": "broadcast", "elements": None}
        steps = range(at, at + 3_000_000, 1_000_000)
        return [
            call for begin in steps
            for call in (one(begin, begin + 500_000, elements=None),
                         *(one(begin + start, begin + end, **small) for start, end in broadcasts))
        ]  # fmt: skip

    ranks = {
        0: rank(0, (600_000, 800_000), (770_000, 806_000)),
        1: rank(0, (613_000, 617_000), (782_000, 796_000)),
        2: rank(0, (766_000, 800_000), (790_000, 800_000)),
    }
    matches = match_collectives(ranks)
    assert [match.members for match in matches] == [dict.fromkeys(range(3), at) for at in range(9)]


def test_of_two_that_are_handed_over_in_a_row_either_may_begin_first() -> None:
    """A bucket and the map of the parameters used behind it: gloo's two threads begin them as the scheduler likes."""
    ranks = {
        0: [one(0, 1_000_000), one(6_360_000, 52_910_000), one(6_600_000, 49_380_000), one(60_000_000, 61_000_000)],
        1: [one(0, 1_000_000), one(49_070_000, 49_430_000), one(49_440_000, 54_360_000), one(60_000_000, 61_000_000)],
    }
    for order in ((0, 1), (1, 0)):
        matches = match_collectives({rank: ranks[own] for rank, own in enumerate(order)})
        assert [match.missing for match in matches] == [None] * 4
        pairs = {tuple(match.members[rank] for rank in order) for match in matches}
        assert pairs == {(0, 0), (1, 2), (2, 1), (3, 3)}


def test_two_of_unlike_contents_that_a_rank_begins_in_another_order_are_both_paired() -> None:
    """DDP's two broadcasts of buffers: *the trace of rank 0 lacks some of what ran* was told of a job without fault."""
    floats, counts = ({"operation": "broadcast", "elements": many, "root": 0} for many in (192, 2))

    def step(at: int, late: int, *, crossed: bool) -> list[RankCollective]:
        begun = at + late
        own = [one(begun, at + 44_350_000, **floats), one(begun + 80_000, at + 46_560_000, **counts)]
        if crossed:
            own = [one(begun, at + 46_560_000, **counts), one(begun + 80_000, at + 44_350_000, **floats)]
        return [*own, one(at + 170_000_000, at + 215_000_000)]

    for crossed in range(3):
        here = [each for at in range(3) for each in step(at * 220_000_000, 44_000_000, crossed=False)]
        there = [each for at in range(3) for each in step(at * 220_000_000, 0, crossed=at == crossed)]
        for ranks in ({0: here, 1: there}, {0: there, 1: here}):
            matches = match_collectives(ranks)
            assert [match.missing for match in matches] == [None] * 9
            for match in matches:
                mine, others = (ranks[rank][index] for rank, index in match.members.items())
                assert mine.elements == others.elements


def test_what_a_window_cut_off_is_not_crossed_with_what_another_one_did() -> None:
    floats, counts = ({"operation": "broadcast", "elements": many, "root": 0} for many in (192, 2))
    here = [one(0, 10_000, **floats), one(20_000, 30_000, **counts), one(90_000, 95_000)]
    there = [one(20_000, 30_000, **counts), one(60_000, 70_000, **floats), one(90_000, 95_000)]
    members = [match.members for match in match_collectives({0: here, 1: there})]
    assert {0: 1, 1: 0} in members and {0: 0, 1: 1} not in members


def test_collectives_that_ran_before_the_first_step_are_no_word_of_the_answer() -> None:
    """*8 collectives cut off by the window's edge* stood in a healthy job's first answer: each recording begins so."""
    summaries = read("stalled_host_rank1_n2")

    def said() -> list[str]:
        matches = match_collectives({rank: one.collectives for rank, one in summaries.items()})
        assert sum(match.missing == "window" for match in matches) >= 10
        return [reason for reason in judge(summaries, 2, matches, []).reasons if "window's edge" in reason]

    assert said() == []
    # the last of two steps, which every figure is of, has its collectives on one rank alone
    last = max(found.step or 0 for found in summaries[1].collectives)
    kept = [found for found in summaries[1].collectives if found.step != last]
    summaries[1] = replace(summaries[1], collectives=kept)
    (told,) = [reason for reason in said() if "rank 1" in reason]
    assert told.startswith("group 0: ") and told.endswith(" cut off by the window's edge on rank 1, not matched")


def test_a_rank_that_lacks_a_collective_amid_others_is_named() -> None:
    left = [one(at * 1_000_000, at * 1_000_000 + 500) for at in range(5)]
    right = [single for at, single in enumerate(left) if at != 2]
    matches = match_collectives({0: left, 1: right})
    (incomplete,) = [match for match in matches if match.missing]
    assert incomplete.missing == "member" and incomplete.missing_ranks == (1,) and incomplete.members == {0: 2}


def test_a_group_that_each_rank_calls_otherwise_is_one() -> None:
    """Its collectives counted twice: *1,078 MB a step where there were 539* was told of the same job."""
    ranks = {0: [one(0, 10), one(20, 30)], 1: [one(1, 10, group="5"), one(21, 30, group="5")]}
    share_names(ranks)
    assert [match.missing for match in match_collectives(ranks)] == [None, None]


def test_two_groups_of_the_same_ranks_keep_their_names() -> None:
    ranks = {0: [one(0, 10), one(20, 30, group="1")], 1: [one(1, 10, group="5"), one(21, 30, group="1")]}
    share_names(ranks)
    assert [own[0].group for own in ranks.values()] == ["0", "5"]


def test_two_meshes_rows_of_one_name_are_kept_apart() -> None:
    ranks = {rank: [one(0, 100, group_ranks=(rank // 2 * 2, rank // 2 * 2 + 1))] for rank in range(4)}
    assert [match.members for match in match_collectives(ranks)] == [{0: 0, 1: 0}, {2: 0, 3: 0}]


@settings(deadline=None)
@example(offset=-194_304, gaps=[100_000] * 5, late=[0] * 20, cut=0)  # evenly spaced: a lag of three fits as well
@given(
    offset=st.integers(-5_000_000, 5_000_000),
    # no two alike: of evenly spaced ones every third lag fits, and clocks are taken to be about right
    gaps=st.lists(st.integers(1, 16).map(lambda count: 100_000 * count), min_size=4, max_size=16, unique=True),
    late=st.lists(st.integers(0, 50_000), min_size=20, max_size=20),
    cut=st.integers(0, 2),
)
def test_the_offset_between_two_hosts_is_found_within_its_half_interval(
    offset: int, gaps: list[int], late: list[int], cut: int
) -> None:
    here, there, clock = [], [], 0
    for at, gap in enumerate(gaps):
        clock += gap
        end = clock + late[at] + 30_000 + at  # sizes differ, so that one lag stands out
        here.append(one(clock, end, elements=at % 3 + 1))
        there.append(one(clock + late[at] - offset, end + 700 - offset, elements=at % 3 + 1))
        clock = end
    ranks = {0: here, 1: there[cut:]}
    clocks = host_offsets({0: "a", 1: "b"}, ranks)
    assert abs(clocks.offsets[1] - offset) <= clocks.half_interval_ns["b"] + 1
    assert clocks.half_interval_ns["b"] < 100_000
    assert sum(match.missing is None for match in match_collectives(ranks, clocks.offsets)) == len(gaps) - cut


def test_ranks_of_one_host_are_not_corrected() -> None:
    assert host_offsets({0: "a", 1: "a"}, {0: [one(0, 10)], 1: [one(900, 910)]}).offsets == {}


def moved(rank: int, source: int, spans: list[tuple[int, int]]) -> list[RankCollective]:
    """One rank's ends of transfers from rank `source` to the other, (begin, end) in ms."""
    return [
        RankCollective(start=begin * 1_000_000, end=end * 1_000_000, operation="send_recv", elements=4, group="pp",
                       group_ranks=(0, 1), source=source, destination=1 - source, step=0)
        for begin, end in spans
    ]  # fmt: skip


def test_messages_are_paired_in_order_though_they_are_gone_before_they_are_asked_for() -> None:
    sends, receives = [(0, 1), (10, 11), (20, 21)], [(30, 31), (50, 51), (70, 71)]
    back, returned = [(60, 61), (80, 81)], [(5, 61), (62, 81)]  # which begins before what goes is sent
    ranks = {
        0: sorted([*moved(0, 0, sends), *moved(0, 1, returned)], key=lambda one: one.start),
        1: sorted([*moved(1, 0, receives), *moved(1, 1, back)], key=lambda one: one.start),
    }
    matches = match_collectives(ranks)
    assert all(match.missing is None for match in matches)
    pairs = {(ranks[0][match.members[0]].end, ranks[1][match.members[1]].end) for match in matches}
    assert pairs == {(1_000_000 * one, 1_000_000 * other) for one, other in
                     ((1, 31), (11, 51), (21, 71), (61, 61), (81, 81))}  # fmt: skip


def test_messages_that_a_window_cut_off_are_not_paired_with_others() -> None:
    ranks = {0: moved(0, 0, [(20, 21), (40, 41)]), 1: moved(1, 0, [(0, 1), (20, 21), (40, 41)])}
    matches = match_collectives(ranks)
    assert [match.members for match in matches] == [{1: 0}, {0: 0, 1: 1}, {0: 1, 1: 2}]
    assert [match.missing for match in matches] == ["window", None, None]


def test_a_send_that_is_kept_open_moves_data_no_longer_than_its_receive() -> None:
    """gloo's record of an isend ends where its work is waited for, as late as at the step's end."""
    ranks = {0: moved(0, 0, [(0, 280)]), 1: moved(1, 0, [(10, 12)])}
    (match,) = match_collectives(ranks)
    found = wait_of(match, ranks)
    assert found is not None
    assert found.ready == {0: 280_000_000, 1: 10_000_000}
    ranks[0] = moved(0, 0, [(0, 13)])  # one that ends about when its receive does is none of these
    found = wait_of(match, ranks)
    assert found is not None and found.ready == {0: 10_000_000, 1: 10_000_000}


def micro_batches(rank: int, at: float) -> list[RankCollective]:
    """One rank's ends of a GPipe step of four micro-batches, whose second stage is slow: sends are gone before they are
    asked for; rank 1's gradients come 6 ms apart."""
    asked = [2 * part + 2 if rank == 0 else (2 if part == 0 else 3 * part + 2) for part in range(4)]
    back = [20 + 6 * part for part in range(4)]
    begins = [(0, at + begin) for begin in asked] + [(1, at + begin - 2 * (rank == 0)) for begin in back]
    ends = [0.1] * 4 + [2.1 if rank == 0 else 0.1] * 4
    return [
        RankCollective(start=round(begin * 1e6), end=round((begin + length) * 1e6), operation="send_recv", elements=4,
                       group="pp", group_ranks=(0, 1), group_size=2, source=source, destination=1 - source)
        for (source, begin), length in zip(begins, ends, strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize("silent", [(8, 8), (8, 6), (7, 5), (5, 7), (6, 8), (3, 5)])
@pytest.mark.parametrize("cut", [(2, 1), (0, 3), (1, 1)])
def test_transfers_launched_before_the_window_are_paired_in_order(
    silent: tuple[int, int], cut: tuple[int, int]
) -> None:
    """The first of each rank say nothing of themselves, as kernels do whose launch came before the window."""
    ranks, truth = {}, {}
    for rank in (0, 1):
        whole = [one for step in range(3) for one in micro_batches(rank, 60.0 * step)]
        for one in whole[: silent[rank]]:
            one.source = one.destination = one.elements = None
        ranks[rank] = whole[cut[rank] :]
        truth[rank] = range(cut[rank], len(whole))  # which one each is of all that there were
    matches = match_collectives(ranks)
    for match in matches:
        assert len({truth[rank][index] for rank, index in match.members.items()}) == 1
    surplus = abs(cut[0] - cut[1])
    assert [match.missing for match in matches] == ["window"] * surplus + [None] * (24 - max(cut))


def test_transfers_that_say_nothing_in_a_group_of_several_are_left_alone() -> None:
    """Which two of four stages one is between nobody can tell; it is cut off, and not one of three ranks' together."""
    stages = (0, 1, 2, 3)
    told = [RankCollective(start=5, end=9, operation="send_recv", elements=4, group="pp", group_ranks=stages, source=0,
                           destination=1)]  # fmt: skip
    ranks = {
        rank: [RankCollective(start=0, end=4, operation="send_recv", group="pp", group_ranks=stages),
               *(told if rank < 2 else [])]
        for rank in stages
    }  # fmt: skip
    matches = match_collectives(ranks)
    assert [(list(match.members), match.missing) for match in matches] == [
        *(([rank], "window") for rank in stages), ([0, 1], None)
    ]  # fmt: skip


def test_of_two_ranks_a_send_says_to_whom_though_shapes_were_not_recorded(tmp_path: Path) -> None:
    job = GlooJob()
    for number in range(4):
        job.step(number)
        job.compute(0.02, calls=60)
        job.transfer(0, 1.0)
        job.compute(3.0, rank=1)
        job.transfer(1, 2.0)
    folder = job.write(tmp_path)
    ranks = {
        one.rank: one.collectives for path in sorted(folder.iterdir()) if (one := summarise(path)).rank is not None
    }
    assert [(one.source, one.destination) for one in ranks[0]] == [(0, 1), (1, 0)] * 4
    matches = match_collectives(ranks)
    assert [(match.members, match.missing) for match in matches] == [({0: at, 1: at}, None) for at in range(8)]


def test_a_monitored_barrier_is_one_barrier_and_names_the_rank_that_comes_last(tmp_path: Path) -> None:
    """Its messages were told as transfers without partners, and the rank's sleep as hosts that others starve."""
    job = GlooJob()
    for number in range(8):
        job.step(number)
        job.sleep(1, 15.0)
        job.monitored_barrier()
        job.compute(0.2, "aten::view", calls=40)
        job.compute(20.0, calls=4)
        job.all_reduce(1.0)
    analysis = analysed(job.write(tmp_path))
    assert {one.operation for one in analysis.collectives} == {"barrier", "all_reduce"}
    first = analysis.findings[0]
    assert (first.code, first.rank) == ("host_stall", 1) and first.ms == pytest.approx(15, abs=1.0), first
    assert all(one.exposed_unsplit_ms == 0 for one in analysis.ranks)


def test_a_thread_that_hands_over_more_collectives_does_not_wait_for_those_that_it_has(tmp_path: Path) -> None:
    """As an optimiser does that shares its states: the replay made the step a fifth longer than it was."""
    job = GlooJob()
    for number in range(6):
        job.step(number)
        job.compute(0.2, "aten::view", calls=40)
        job.compute(10.0, calls=4)
        job.broadcasts_in_a_row(5, 0.9)
        job.compute(2.0, calls=4)
    replay = analysed(job.write(tmp_path)).replay
    assert replay is not None and abs(replay.error) < 0.01
