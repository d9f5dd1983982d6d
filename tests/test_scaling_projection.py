"""Projection: what a study's sweep says about its steps on other counts, tested on itself, and its refusals."""

import json
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalescope.cli import front_door
from scalescope.records.folder import RunFolder
from scalescope.report.panels.projection import expectation_sentence
from scalescope.scaling.analyze import analyze_study
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.costs.model import CostModel, NotKnown
from scalescope.scaling.costs.points import Launch
from scalescope.scaling.costs.topology import Topology
from scalescope.scaling.projected import Projected
from scalescope.scaling.projection.hiding import replay
from scalescope.scaling.projection.laws import doublings, expected_last, inflation_growth, wait_growth
from scalescope.scaling.projection.noise import repeat_half_ms
from scalescope.scaling.projection.outlook import Outlook
from scalescope.scaling.rank.exchanges import Exchange, RankExchanges
from scalescope.scaling.study_answer import StudyAnalysis
from scalescope.scaling.trace.intervals import intervals, union
from tests.projection_studies import H200, MIB, add_run, add_sweep, make_pair, sweep_rows
from tests.recorded import explained_of


@pytest.fixture
def study(tmp_path: Path) -> RunFolder:
    """Real traces on 1 and 2 GPUs, a measured step on 4, and a sweep."""
    folder = RunFolder.create(tmp_path / "study", "study", "x: 1")
    add_run(folder.path, "gpt_ddp_n1", 1, 62.3)
    add_run(folder.path, "gpt_ddp_n2", 2, 64.5)
    add_run(folder.path, "gpt_ddp_compile_n4", 4, 65.2)
    add_sweep(folder.path, sweep_rows())
    return folder


@pytest.fixture
def pair(tmp_path: Path) -> RunFolder:
    return make_pair(tmp_path / "pair")


def reported(answer: StudyAnalysis) -> list[Projected]:
    assert answer.projection is not None
    return answer.projection.points


def test_a_count_that_was_measured_is_projected_from_the_smaller_ones(study: RunFolder) -> None:
    answer, _ = analyze_study(study)
    assert answer.projection is not None
    (tested,) = answer.projection.backtests
    assert (tested.from_world_sizes, tested.world_size) == ([1, 2], 4)
    assert tested.measured_step_ms == pytest.approx(65.2, rel=0.002)
    assert tested.step_ms is not None and tested.off is not None and tested.measured_step_ms is not None
    assert tested.off == pytest.approx(tested.step_ms.value / tested.measured_step_ms - 1)
    assert abs(tested.off) < 0.03 and tested.inside is True
    # nothing of what 4 GPUs measured has come in: a sweep without them says the same
    fewer = msgspec.structs.replace(tested)
    sweep = RunFolder(study.path / "sweep")
    sweep.sweep.unlink()
    with sweep.sweep_writer() as writer:
        for row in sweep_rows((2,)):
            writer.append(row)
    again, _ = analyze_study(study)
    assert again.projection is not None and again.projection.backtests == [fewer]


def test_a_measured_step_that_nothing_foretells_lies_outside(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "study", "study", "x: 1")
    add_run(folder.path, "gpt_ddp_n1", 1, 62.3)
    add_run(folder.path, "gpt_ddp_n2", 2, 64.5)
    add_run(folder.path, "gpt_ddp_n2", 4, 80.0)
    add_sweep(folder.path, sweep_rows())
    answer, _ = analyze_study(folder)
    assert answer.projection is not None
    (tested,) = answer.projection.backtests
    assert tested.inside is False and tested.off is not None and tested.off < -0.15


def test_parts_add_up_and_intervals_widen_with_the_count(study: RunFolder) -> None:
    outlook = Outlook(gpus=(8, 64, 4096), topology=Topology(gpus_per_node=8, nic_gb_s=50, nic_latency_us=5))
    answer, _ = analyze_study(study, outlook=outlook)
    points = reported(answer)
    assert [one.world_size for one in points] == [8, 64, 4096]
    widths = []
    for one in points:
        assert one.step_ms is not None and one.efficiency is not None and one.samples_per_s is not None
        largest = next(point for point in answer.efficiency if point.world_size == 4)
        first = next(point for point in answer.efficiency if point.world_size == 1)
        changes = sum(part.change_ms.value for part in one.parts)
        assert one.step_ms.value == pytest.approx(largest.step_ms + changes)
        assert one.step_ms.low < one.step_ms.value < one.step_ms.high
        assert one.efficiency.value == pytest.approx(first.step_ms / one.step_ms.value)
        assert one.samples_per_s.value == pytest.approx(32 * one.world_size / one.step_ms.value * 1e3)
        assert all(part.change_ms.low <= part.change_ms.value <= part.change_ms.high for part in one.parts)
        widths.append(one.step_ms.half)
    assert widths == sorted(widths)
    assert any("8 ranks share one host" in text for text in points[0].assumed)
    assert any("50 GB/s" in text for text in points[1].assumed)


def test_strong_scaling_divides_the_batch_and_keeps_what_does_not_shrink(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "study", "study", "x: 1")
    add_run(folder.path, "gpt_ddp_n1", 1, 62.3, batch=32)
    add_run(folder.path, "gpt_ddp_n2", 2, 64.5, batch=16)
    add_sweep(folder.path, sweep_rows())
    answer, _ = analyze_study(folder, outlook=Outlook(gpus=(4,)))
    (one,) = reported(answer)
    assert one.scaling == "strong" and one.step_ms is not None and one.efficiency is not None
    assert one.samples_per_s is not None
    assert one.samples_per_s.value == pytest.approx(32 / one.step_ms.value * 1e3)
    assert one.efficiency.value == pytest.approx(62.3 / (4 * one.step_ms.value), rel=0.01)
    # these traces compute as long on 2 as on 1: nothing shrinks, but a perfect split stays possible
    compute = next(part for part in one.parts if part.part == "compute")
    assert compute.change_ms.value == pytest.approx(0, abs=0.5)
    assert compute.change_ms.low < -0.4 * compute.from_ms


def refused(answer: StudyAnalysis) -> str:
    points = reported(answer)
    assert points and all(one.step_ms is None for one in points)
    return points[0].refused or ""


def test_what_the_measurements_cannot_tell_is_refused_with_its_reason(tmp_path: Path) -> None:
    one = RunFolder.create(tmp_path / "one", "study", "x: 1")
    add_run(one.path, "gpt_ddp_n2", 2, 64.5)
    add_sweep(one.path, sweep_rows())
    assert "two counts at least" in refused(analyze_study(one)[0])

    none = RunFolder.create(tmp_path / "none", "study", "x: 1")
    add_run(none.path, "gpt_ddp_n1", 1, 62.3)
    add_run(none.path, "gpt_ddp_n2", 2, 64.5)
    answer, runs = analyze_study(none)
    assert "there is no sweep" in refused(answer)
    assert answer.costs is None and any("no cost model" in reason for reason in answer.reasons)
    assert all(row.efficiency is None and "there is no sweep" in (row.reason or "") for row in runs[1].in_situ)

    other = RunFolder.create(tmp_path / "other", "study", "x: 1")
    add_run(other.path, "gpt_ddp_n1", 1, 62.3)
    add_run(other.path, "gpt_ddp_n2", 2, 64.5)
    add_sweep(other.path, sweep_rows(), device="NVIDIA A100-SXM4-80GB")
    answer, runs = analyze_study(other, outlook=Outlook(gpus=(4,)))
    assert "NVIDIA A100-SXM4-80GB" in refused(answer) and H200 in refused(answer)
    assert runs[1].in_situ and all("NVIDIA A100" in (row.reason or "") for row in runs[1].in_situ)
    assert all(call.in_situ_efficiency is None for call in runs[1].collectives)

    gather = RunFolder.create(tmp_path / "gather", "study", "x: 1")
    add_run(gather.path, "gpt_ddp_n1", 1, 62.3)
    add_run(gather.path, "gpt_ddp_n2", 2, 64.5)
    add_sweep(gather.path, [msgspec.structs.replace(row, operation="all_gather") for row in sweep_rows()])
    assert "operations=[all_reduce]" in refused(analyze_study(gather, outlook=Outlook(gpus=(4,)))[0])


def test_a_topology_that_was_not_measured_is_refused_until_the_user_gives_its_figures(study: RunFolder) -> None:
    answer, _ = analyze_study(study)  # the next doublings of 4 are 8 and 16
    assert [one.world_size for one in reported(answer)] == [8, 16]
    assert "links of no more than 4 ranks" in refused(answer)
    wide, _ = analyze_study(study, outlook=Outlook(gpus=(8, 16), topology=Topology(gpus_per_node=8)))
    first, second = reported(wide)
    assert first.step_ms is not None and second.step_ms is None and "--nic-gb-s" in (second.refused or "")


class Slow:
    """A step replayed tick by tick: compute that goes on by one a tick unless it stands, and a queue of transfers."""

    def __init__(self, work: int, exchanges: list[tuple[int, int, int | None, bool]]) -> None:
        self.work = work
        self.exchanges = exchanges  # ready at this progress, takes, blocks at this progress, behind the one before

    def stood(self) -> int:
        come = clock = stood = 0
        left = [takes for _, takes, _, _ in self.exchanges]
        while True:
            moving = next((at for at, remaining in enumerate(left) if remaining > 0), None)
            waits = any(
                block is not None and come >= block and left[at] > 0
                for at, (_, _, block, _) in enumerate(self.exchanges)
            )
            done = come >= self.work
            if done and moving is None:
                return stood
            if moving is not None and come >= self.exchanges[moving][0]:
                left[moving] -= 1
                if done or waits:
                    stood += 1
            if not done and not waits:
                come += 1
            clock += 1
            assert clock < 10_000


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 9), st.booleans()), max_size=6), st.integers(1, 4))
def test_the_replay_of_a_queue_equals_one_made_tick_by_tick(steps: list[tuple[int, int, bool]], factor: int) -> None:
    """Exchanges one behind the other; compute waits for the end of some; each takes `factor` times as long."""
    exchanges: list[Exchange] = []
    stands: list[tuple[int, int]] = []
    slow: list[tuple[int, int, int | None, bool]] = []
    now = come = 0
    for gap, takes, blocks in steps:
        ready = now + gap  # compute goes on meanwhile
        at_ready = come + gap
        # a blocking one lets compute run under its first half
        under = takes // 2 if blocks else takes
        end = ready + takes
        if blocks:
            stands.append((ready + under, end))
        exchanges.append(
            Exchange(None, "all_reduce", 1, "float32", 2, ready, end, takes - under if blocks else 0, blocks)
        )
        slow.append((at_ready, takes * factor, at_ready + under if blocks else None, True))
        now, come = end, at_ready + under
    edges = np.array([0, now + 5], np.int64)
    rank = RankExchanges(edges, union(intervals(stands)), exchanges)
    found = replay(rank, lambda _: float(factor))
    assert found.exposed == Slow(come + 5, slow).stood()
    assert found.transfer == sum(takes for _, takes, _ in steps) * factor


@pytest.mark.parametrize("name", ["gpt_ddp_n2", "gpt_ddp_compile_n4"])
def test_nothing_changed_is_what_the_trace_has(name: str) -> None:
    """Replayed as it is, compute stands for collectives as long as in the trace, less the gaps between kernels."""
    found = explained_of(name)
    for rank, exchanges in found.exchanges.items():
        steps = found.partitions[rank]
        exposed = sum(step.transfer for step in steps) / len(steps)
        same = replay(exchanges, lambda _: 1.0)
        assert 0.6 * exposed < same.exposed <= exposed
        assert replay(exchanges, lambda _: 0.0).exposed == 0
        assert replay(exchanges, lambda _: 3.0).exposed >= 3 * same.exposed - 1
        assert replay(exchanges, lambda _: 1.0, compute=0.3).exposed > same.exposed, "less compute hides less"


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 64), st.integers(1, 12))
def test_laws_bound_themselves_and_grow_with_the_count(ranks: int, doubled: int) -> None:
    more = ranks * 2**doubled
    for law in (wait_growth(ranks, more), inflation_growth(ranks, more, 1.2)):
        assert law.low <= 1.0 <= law.value <= law.high
    assert wait_growth(ranks, 2 * more).value > wait_growth(ranks, more).value
    assert doublings(ranks, more) == pytest.approx(1 + doubled / math.log2(ranks))


def test_slower_compute_is_bounded_by_as_much_again_a_doubling_whatever_count_it_is_measured_against() -> None:
    # from 1 to 4 ranks there are two doublings, so a third adds half of what they did
    assert inflation_growth(4, 8, 1.1, since=1).high == pytest.approx(1.5)
    # from 2 to 4 there is one, and another adds as much as that
    assert inflation_growth(4, 8, 1.1, since=2).high == pytest.approx(2.0)


def test_the_expected_last_arrival_is_that_of_drawn_ones() -> None:
    generator = np.random.default_rng(1)
    for ranks in (2, 4, 64):
        drawn = generator.standard_normal((40_000, ranks)).max(axis=1).mean()
        assert expected_last(ranks) == pytest.approx(drawn, rel=0.05)


def test_one_more_run_differs_by_what_batches_of_steps_do() -> None:
    generator = np.random.default_rng(3)
    steady = (60 + 0.1 * generator.standard_normal(50)).tolist()
    drifting = (60 + np.linspace(0, 4, 50) + 0.1 * generator.standard_normal(50)).tolist()
    assert repeat_half_ms(steady) < 0.2
    assert repeat_half_ms(drifting) > 10 * repeat_half_ms(steady)
    assert math.isnan(repeat_half_ms([60.0] * 8))


def test_an_expectation_says_what_its_efficiency_is_against_where_that_is_not_one_rank() -> None:
    known = Interval(0.98, 0.97, 0.99)
    point = Projected(
        series="s", scaling="weak", world_size=8, from_world_sizes=[1, 2], step_ms=known, efficiency=known
    )
    assert expectation_sentence([point], "gpu").startswith("Efficiency to expect: 8 GPUs 98.0% (97.0% to 99.0%)")
    point.from_world_sizes = [2, 4]
    assert expectation_sentence([point], "gpu").startswith("Efficiency to expect against 2 GPUs: 8 GPUs 98.0%")


def test_one_size_alone_says_nothing_of_the_sizes_in_training() -> None:
    model = CostModel([Launch("one", [row for row in sweep_rows() if row.bytes == 64 * MIB])])
    assert model.cost("all_reduce", 64 * MIB, "float32", 3).time_us.low > 0
    with pytest.raises(NotKnown, match="says nothing of 8388608 B; sweep more sizes"):
        model.cost("all_reduce", 8 * MIB, "float32", 4)


def test_the_verb_projects_prints_and_writes(
    pair: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "projection.json"
    argv = ["project", str(pair.path), "--gpus", "16,8", "--gpus-per-node", "8", "--nic-gb-s", "50"]
    assert front_door.main([*argv, "--nic-latency-us", "5", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Efficiency to expect: 8 GPUs" in printed and "Not tested: that takes three measured counts" in printed
    written = json.loads(out.read_text())
    assert [point["world_size"] for point in written["points"]] == [8, 16]
    assert json.loads(pair.analysis.read_text())["projection"] == written
    page = pair.report.read_text()
    for heading in ("What to expect on other GPU counts", "What collectives lose in training",
                    "What a collective costs", "kinds of kernels", "slower compute by kind"):  # fmt: skip
        assert heading in page


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--nic-gb-s", "50"], "--gpus-per-node"),
        (["--gpus-per-node", "8", "--nic-gb-s", "50"], "--nic-latency-us"),
        (["--gpus-per-node", "0"], "above 0"),
        (["--gpus-per-node", "8", "--nic-gb-s", "-1", "--nic-latency-us", "5"], "above 0"),
    ],
)
def test_a_machine_that_is_half_said_is_refused(
    pair: RunFolder, argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert front_door.main(["project", str(pair.path), *argv]) == 2
    assert says in capsys.readouterr().err


def test_a_projection_that_is_refused_is_no_success_and_says_of_which_series(
    pair: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert front_door.main(["project", str(pair.path), "--gpus", "64"]) == 2
    assert "\ngpt: 64 GPUs: refused, since the links of no more than" in capsys.readouterr().out


def test_a_run_is_no_study_and_counts_are_counts(pair: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert front_door.main(["project", str(pair.path / "gpt-2")]) == 2
    assert "needs a study" in capsys.readouterr().err
    assert front_door.main(["project", str(pair.path), "--gpus", "eight"]) == 2
    assert "no GPU counts" in capsys.readouterr().err
