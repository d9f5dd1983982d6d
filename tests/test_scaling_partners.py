"""Sends and receives of three ranks and more on gloo, whose records name no partner: what the ranks do tells them."""

from pathlib import Path

import pytest

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import PipelineRow, Split
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.rank.collective import SEND_HELD_UP_NS, RankCollective
from scalescope.scaling.ranks.gloo.partners import name_partners
from scalescope.scaling.verdicts.pipeline import rows_as_run, with_bubbles
from tests.gloo_traces import GlooJob, analysed

BACKWARD = "autograd::engine::evaluate_function: MmBackward0"


def pipeline(folder: Path, *, sleep_ms: float = 0.0, recorded_late_ms: float = 0.0, stages: int = 3) -> RunAnalysis:
    """Stages that pass two micro-batches on, and their gradients back; the second one's host may sleep before each."""
    job = GlooJob(world_size=stages)
    for step in range(6):
        job.step(3 + step)
        for _ in range(2):
            for rank in range(stages):
                if rank:
                    job.message(rank - 1, rank, 0.2, recorded_late_ms)
                if rank == 1:
                    job.sleep(1, sleep_ms)
                job.compute(5.0, rank=rank, calls=5)
        for _ in range(2):
            for rank in reversed(range(stages)):
                if rank < stages - 1:
                    job.message(rank + 1, rank, 0.2, recorded_late_ms)
                begun = job.now[rank]
                job.compute(5.0, rank=rank, calls=5)
                job.operator(BACKWARD, rank, begun)
    return analysed(job.write(folder))


@pytest.mark.parametrize("stages", [3, 4])
def test_stages_are_told_by_what_comes_before_and_after_a_backward_pass(tmp_path: Path, stages: int) -> None:
    """Before, *exposed wait or transfer*, and no replay: `group 0: collectives amid others missing, not split`."""
    run = pipeline(tmp_path, stages=stages)
    assert (
        run.replay is not None and run.unpriced is None and not any("not split" in why for why in run.quality.reasons)
    )
    (row,) = run.pipelines
    assert row.stages == list(range(stages)) and row.micro_batches == 2
    assert all(split.exposed_unsplit_ms == 0 for split in run.ranks)


@pytest.mark.parametrize("recorded_late_ms", [0.0, 0.5])
def test_a_stage_that_sleeps_is_told_before_the_bubble_that_it_makes(tmp_path: Path, recorded_late_ms: float) -> None:
    """Before, `a pipeline bubble costs at most` the whole step stood first; a send's record begins once it has gone."""
    first, *others = pipeline(tmp_path, sleep_ms=6.0, recorded_late_ms=recorded_late_ms).findings
    assert (first.code, first.rank) == ("host_stall", 1)
    assert first.ms == pytest.approx(12.0, rel=0.25) and first.low_ms is not None and first.low_ms > 0
    assert others[0].code == "pipeline_bubble"


def ends(*ways: tuple[bool, int, bool], group_ranks: tuple[int, ...] = (0, 1, 2)) -> list[RankCollective]:
    """Sends (True) and receives of one rank: when they are over, and whether beside a backward pass."""
    return [
        RankCollective(start=at - 5, end=at, operation="send_recv", group="0", group_ranks=group_ranks, goes=goes,
                       of_backward=backward, step=at // 100)
        for goes, at, backward in ways
    ]  # fmt: skip


def test_a_server_asks_the_others_in_their_order() -> None:
    hub = [(False, 110, False), (False, 120, False), (True, 130, False), (True, 140, False)]
    ranks = {
        0: ends(*hub),
        1: ends((True, 110, True), (False, 130, True)),
        2: ends((True, 120, True), (False, 140, True)),
    }
    name_partners(ranks)
    assert [(one.source, one.destination) for one in ranks[0]] == [(1, 0), (2, 0), (0, 1), (0, 2)]
    assert [(one.source, one.destination) for one in ranks[2]] == [(2, 0), (0, 2)]


def test_where_no_way_fits_partners_stay_unknown() -> None:
    ranks = {0: ends((True, 110, False), (True, 120, False)), 1: ends((False, 110, False)), 2: ends((True, 120, True))}
    name_partners(ranks)
    assert all(one.source is one.destination is None for own in ranks.values() for one in own)


@pytest.mark.parametrize(("stalled_ms", "codes"), [(8.0, ["host_stall", "pipeline_bubble"]), (20.0, ["host_stall"])])
def test_what_a_stalled_stage_explains_of_a_bubble_is_not_told_once_more(stalled_ms: float, codes: list[str]) -> None:
    """Before, *a pipeline bubble costs at most 0.00 ms* behind it."""
    row = PipelineRow(group="pp", stages=[0, 1], micro_batches=4, bubble_ms=20.0, bubble=0.2, schedule_bubble=0.2,
                      slow_rank=None, compute_ms={0: 80.0, 1: 80.0}, steps=5)  # fmt: skip
    stall = Finding(code="host_stall", rank=1, ms=stalled_ms, low_ms=stalled_ms, high_ms=stalled_ms, backed="replay")
    told = with_bubbles([stall], [row], 100.0)
    assert [one.code for one in told] == codes
    assert sum(one.ms or 0.0 for one in told) == pytest.approx(20.0)


def test_three_stages_with_one_micro_batch_are_no_server_in_the_middle() -> None:
    """Who sends to its left and to its right as often could be that, too: in a row of three the middle one is."""
    ranks = {
        0: ends((True, 110, False), (False, 140, False)),
        1: ends((False, 110, False), (True, 120, False), (False, 130, True), (True, 140, True)),
        2: ends((False, 120, False), (True, 130, True)),
    }
    ranks[1].reverse()  # in whatever order they are listed
    name_partners(ranks)
    assert [(one.source, one.destination) for one in ranks[1]] == [(1, 0), (2, 1), (1, 2), (0, 1)]


def test_a_server_may_be_any_but_the_middle_one_of_three() -> None:
    others = {
        rank: ends((True, 110 + rank, True), (False, 120 + rank, True), group_ranks=(0, 1, 2, 3)) for rank in (0, 2, 3)
    }
    hub = [(False, 110, False), (False, 112, False), (False, 113, False),
           (True, 120, False), (True, 122, False), (True, 123, False)]  # fmt: skip
    ranks = {**others, 1: ends(*hub, group_ranks=(0, 1, 2, 3))}
    name_partners(ranks)
    assert [(one.source, one.destination) for one in ranks[1]] == [(0, 1), (2, 1), (3, 1), (1, 0), (1, 2), (1, 3)]


def test_partners_stay_unknown_where_a_rank_is_missing_or_data_came_before_they_were_sent() -> None:
    def stages(begun: int) -> dict[int, list[RankCollective]]:
        return {
            0: ends((True, begun, False), (True, begun + 1, False)),
            1: ends((False, 110, False), (False, 111, False), (True, 120, False), (True, 121, False)),
            2: ends((False, 120, False), (False, 121, False)),
        }

    def named(ranks: dict[int, list[RankCollective]]) -> bool:
        name_partners(ranks)
        return any(one.source is not None for own in ranks.values() for one in own)

    assert named(stages(105))
    late = stages(110 + 2 * SEND_HELD_UP_NS)
    for one in late[0]:
        one.step = 1
    assert not named(late)
    assert not named({rank: own for rank, own in stages(105).items() if rank != 2})
    with_collective, without_ways = stages(105), stages(105)
    for own in with_collective.values():
        own.append(RankCollective(start=130, end=140, operation="all_reduce", group="0", group_ranks=(0, 1, 2)))
    assert named(with_collective) and with_collective[0][-1].source is None
    without_ways[0][0].goes = None
    assert not named(without_ways)
    some = stages(105)
    some[1][0].source, some[1][0].destination = 0, 1
    name_partners(some)
    assert some[0][0].source is None, "where records name some, they name all that there are"


def stages_of(bubble_ms: float) -> PipelineRow:
    """Four even stages of 28 ms whose schedule's own bubble is 3/11."""
    return PipelineRow(group="pp", stages=[0, 1, 2, 3], micro_batches=8, bubble_ms=bubble_ms, schedule_bubble=3 / 11,
                       bubble=bubble_ms / (28.0 + bubble_ms), slow_rank=None,
                       compute_ms=dict.fromkeys(range(4), 28.0), steps=4)  # fmt: skip


LAUNCHING = Finding(code="host_bound", ms=54.5, low_ms=12.5, high_ms=96.6, at_most=True, backed="replay")


def test_a_pipeline_whose_hosts_bind_it_is_told_so_and_not_to_take_more_micro_batches() -> None:
    """Eager stages whose devices are busy for 28 of 101 ms were told *a pipeline bubble costs at most 10.4 ms*."""
    told = with_bubbles([LAUNCHING], [stages_of(73.0)], 101.0)
    assert [one.code for one in told] == ["host_bound", "pipeline_bubble"]
    assert [one.ms for one in told] == pytest.approx([54.5, 28.0 * 3 / 8])
    assert told[0].high_ms == pytest.approx(101.0 - 28.0 * 11 / 8)  # the schedule's own is nobody's launching


@pytest.mark.parametrize(("step_ms", "on_cpus"), [(40.0, False), (101.0, True)])
def test_what_a_bubble_looks_like_is_no_launching(step_ms: float, on_cpus: bool) -> None:
    told = with_bubbles([LAUNCHING], [stages_of(step_ms - 28.0)], step_ms, on_cpus=on_cpus)
    assert [one.code for one in told] == ["pipeline_bubble"]


def test_a_bubble_is_of_the_step_as_run() -> None:
    """Recording slows the hosts of stages: *stages stand idle for 80.6%* was said of a step that idles for 72.3."""
    splits = [
        Split(rank=rank, window_ms=101.0, compute_ms=28.0, exposed_transfer_ms=0.0, exposed_wait_ms=60.0,
              exposed_unsplit_ms=0.0, exposed_memory_ms=0.0, idle_data_ms=0.0, idle_launch_ms=13.0, idle_queued_ms=0.0)
        for rank in range(4)
    ]  # fmt: skip
    assert [(row.bubble_ms, row.bubble) for row in rows_as_run([stages_of(118.0)], splits)] == [(73.0, 73 / 101)]
    assert rows_as_run([stages_of(118.0)], splits[1:]) == [stages_of(118.0)]
