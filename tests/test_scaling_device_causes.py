"""What a device's own times tell: another process by turns, clocks held down, how much each launch is slowed."""

from pathlib import Path

import numpy as np
import pytest

from scalescope.report.text.findings import because
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.detectors.slower_compute import (
    InCommon,
    by_clocks,
    by_turns,
    everywhere,
    times_beside_collectives,
)
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.contention import inflation_of
from scalescope.scaling.replay.load import read_records
from scalescope.scaling.replay.ranks.between_ranks import cells_between_ranks
from scalescope.scaling.replay.ranks.launch_inflation import slowing_of_launches
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.replay.whatif.replayer import Replayer
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of
from tests import data_parallel
from tests.data_parallel import MS, Disturbance
from tests.test_scaling_findings import found

DATA = Path(__file__).parent / "data"
NAMES = ["nvjet_128x256", "nvjet_128x160", "nvjet_64x64", "cutlass_gemm",
         "vectorized_elementwise_kernel", "layer_norm_grad_input_kernel", "reduce_kernel<128>"]  # fmt: skip


def _replayer(folder: Path) -> Replayer:
    return Replayer(read_records(folder))


def test_a_device_that_is_away_on_one_rank_is_replayed_and_what_it_costs_is_priced(tmp_path: Path) -> None:
    replayer = _replayer(data_parallel.run(tmp_path, Disturbance(away={1: 2 * MS}), ahead=True))
    assert replayer.replay.faithful and replayer.replay.unexplained_ms < 0.5, (
        "that of the last step, which nothing bounds"
    )
    gained = replayer.predict(Change(without=(Removal("slow", 1),)))
    assert gained.change_ms == pytest.approx(-2.0, rel=0.05)


def test_devices_that_are_away_on_all_ranks_are_the_replays_own_fault(tmp_path: Path) -> None:
    replayer = _replayer(data_parallel.run(tmp_path, Disturbance(away=dict.fromkeys(range(4), 2 * MS)), ahead=True))
    assert not replayer.replay.faithful and replayer.replay.unexplained_ms > 1.5


def test_kernels_that_are_longer_by_a_stretch_now_and_then_are_another_process(tmp_path: Path) -> None:
    (one,) = found(data_parallel.run(tmp_path, Disturbance(taken={2: 3 * MS // 2}), steps=8, ahead=True))
    assert (one.code, one.rank) == ("slower_compute", 2) and one.ms == pytest.approx(1.5, rel=0.05)
    assert one.evidence[0].name == "by_turns" and one.evidence[0].value == pytest.approx(1.5, rel=0.01)
    assert "as where another process has the device by turns" in because(one)


def _in_common(multiplies: float, moves: float) -> InCommon:
    theirs = np.array([100_000.0, 80_000.0, 50_000.0, 60_000.0, 90_000.0, 70_000.0, 40_000.0])
    kinds = [kind_of(name) for name in NAMES]
    times = np.array([multiplies if kind in MULTIPLYING else moves for kind in kinds])
    return InCommon(NAMES, kinds, times * theirs, theirs, 1)


def test_multiplications_alone_that_are_all_longer_alike_are_clocks() -> None:
    told = by_clocks(_in_common(1.3, 1.02))
    assert told is not None and told[0] == "throttled" and told[1] == "cool_device"
    one = Finding(code="throttled", rank=1, ms=1.0, low_ms=0.9, high_ms=1.1, evidence=told[2], backed="replay")
    assert "multiplications take 1.3" in because(one) and "clocks" in because(one)
    assert by_clocks(_in_common(1.3, 1.3)) is None and everywhere(_in_common(1.3, 1.3)) is not None
    assert by_clocks(_in_common(1.02, 1.0)) is None


def test_a_cost_that_is_more_of_launches_beside_collectives_tells_how_much_longer_those_are() -> None:
    """*115.0 ms: the same operators take 1.14 times what they take on the others* was told of 324 ms of compute."""
    plain = _in_common(1.14, 1.14)
    told = everywhere(plain)
    assert told is not None
    (row,) = times_beside_collectives(told[2], plain, beside=_in_common(2.3, 2.3))
    assert row.value == pytest.approx(2.3) and row.ms is not None and row.others_ms is not None
    one = Finding(code="slower_compute", rank=0, ms=0.7, low_ms=0.6, high_ms=0.8, backed="replay",
                  evidence=(*told[2], row))  # fmt: skip
    assert "1.14× what they take on the others, whatever their kind, and 2.30× while ranks" in because(one)
    assert list(times_beside_collectives(told[2], plain, beside=_in_common(1.2, 1.2))) == [], "hardly another figure"


def test_a_launch_that_another_process_held_up_does_not_hide_what_waiting_costs_the_others() -> None:
    """A collective makes no launch faster: where the late rank takes 1.4 ms longer for it, that is its own."""
    replayer = _replayer(DATA / "gpt8_ddp_delay4ms_rank1_n2")
    graph, side = replayer.traced, replayer.side_by_side
    alone = cells_between_ranks(graph, side)
    for step in side.steps:
        beside = {}
        for rank in side.ranks:
            own = side.launches[rank, step]
            beside[rank] = {
                place: graph.activities[at]
                for at, place in zip(own.activity, own.place.tolist(), strict=True)
                if graph.activities[at].kind == COMPUTE and place >= 0
            }
        longest = [place for place, node in beside[0].items() if node.overlap_ns > beside[1][place].overlap_ns][:4]
        for place in longest:
            beside[1][place].traced_end += 7 * MS // 5
    shared = cells_between_ranks(graph, side)
    slope, without = (sum(ns for ns, _ in cells) / sum(ns for _, ns in cells) for cells in (shared, alone))
    assert without > 0.1 and slope == pytest.approx(without, rel=0.1)


def _of_two_steps(longer: list[list[int]]) -> InCommon:
    """Ten launches a step of 2 ms each, of which some take 1.5 ms longer, by step."""
    names = [f"kernel_{at}" for at in range(10)] * 2
    theirs = np.full(20, 2e6)
    extra = np.array([1.5e6 if at in own else 0.0 for own in longer for at in range(10)])
    return InCommon(names, ["matmul"] * 20, theirs + extra, theirs, 2, list(range(10)) * 2)


def test_the_same_launches_that_are_longer_in_each_step_are_no_other_process() -> None:
    """A rank of longer sequences has longer products and an optimizer as ever; another process does not know which."""
    assert by_turns(_of_two_steps([[1, 4, 6], [1, 4, 6]])) is None
    told = by_turns(_of_two_steps([[1, 4, 6], [0, 4, 9]]))
    assert told is not None and told[2][0].name == "by_turns"


def test_the_same_launches_that_are_longer_by_one_stretch_whatever_they_take_are_another_process() -> None:
    """Steps of 37 ms came at the pace of a process that had the device in slices of 1.4 ms: *even out the ranks' load*
    was advised of products, casts and attention alike.
    """
    names = [f"kernel_{at}" for at in range(10)] * 2
    kinds = ["matmul", "copies and casts"] * 10
    theirs = np.array([0.1e6 if at % 2 else 2e6 for at in range(10)] * 2)
    places = list(range(10)) * 2
    hit = np.array([at in (1, 4, 6) for at in places])
    slices = InCommon(names, kinds, theirs + np.where(hit, 1.4e6, 0.0), theirs, 2, places)
    told = by_turns(slices)
    assert told is not None and told[1] == "look_at_device" and told[2][0].value == pytest.approx(1.4)
    larger = InCommon(names, kinds, theirs * np.where(hit, 1.7, 1.0) + np.where(hit, 0.3e6, 0.0), theirs, 2, places)
    assert by_turns(larger) is None, "what is longer by a share of what it takes"


def test_launches_that_are_longer_in_the_typical_step_are_no_other_process_though_some_are_held_up_on_the_others() -> (
    None
):
    """A rank of graphs twice as large takes twice as long for all of them, in steps of unlike graphs on busy cores."""
    theirs = np.full((5, 10), 200_000.0)
    mine = 2 * theirs
    mine[range(5), range(5)] += 3e6  # held up, here and there
    theirs[:, 9] = 8e6  # at one place the others mostly stand still, for longer than all they compute
    places = [f"kernel_{at}" for at in range(10)] * 5, list(range(10)) * 5
    steps = [step for step in range(5) for _ in range(10)]
    larger = InCommon(places[0], ["matmul"] * 50, mine.ravel(), theirs.ravel(), 5, places[1], steps)
    assert larger.ratio(np.ones(50, bool)) < 1, "the one place outweighs the others"
    assert larger.typical_ratio == pytest.approx(2.0) and by_turns(larger) is None
    alike = InCommon(places[0], ["matmul"] * 50, (mine - 200_000).ravel(), theirs.ravel(), 5, places[1], steps)
    told = by_turns(alike)
    assert told is not None and told[2][0].name == "by_turns"


def test_inflation_is_of_the_time_that_is_not_slowed_yet() -> None:
    """A kernel of 1 ms that takes 2 beside a collective is longer by half of the time that one is beside it."""
    assert inflation_of(0.5) == pytest.approx(1.0)
    assert inflation_of(0.26) / (1 + inflation_of(0.26)) == pytest.approx(0.26)


def test_each_launch_is_slowed_by_what_it_takes_alone_on_another_rank() -> None:
    """Rank 1 is delayed, so rank 0's kernels have waiting collectives beside them and rank 1's have not."""
    replayer = _replayer(DATA / "gpt8_ddp_delay4ms_rank1_n2")
    graph, side = replayer.traced, replayer.side_by_side
    slowed = slowing_of_launches(replayer.graph, side)
    own = {graph.activities[at].name: slowed[at] for at in side.launches[0, 0].activity if slowed[at] != 1.0}
    assert len(own) > 10 and max(own.values()) > 2 > 0.5 > min(own.values()), "kernels differ widely"
    # without the delay, rank 0's kernels take what rank 1's do
    assert replayer.predict(Change(without=(Removal("own", 1),)), near=True).change_ms == pytest.approx(-4.1, rel=0.03)
