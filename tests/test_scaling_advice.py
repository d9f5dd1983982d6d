"""Advice is the right one: what holds a step up is named, with the setting that changes it and what that brings."""

import math
import statistics
from pathlib import Path

import numpy as np
import pytest

from scalescope.cli import front_door, sweep, train
from scalescope.cli.study import follow
from scalescope.launch.config import register
from scalescope.launch.study import outline_study, plan_study, run_study
from scalescope.report.verdict import run_verdict
from scalescope.scaling.advice.add import is_looked_at, why_no_advice
from scalescope.scaling.advice.advice import advise
from scalescope.scaling.advice.tried import gain_half_ms
from scalescope.scaling.analyze import analyze, analyze_run
from scalescope.scaling.answer import RunAnalysis, StepTimes, read_study_answer
from scalescope.scaling.replay import load as loading
from scalescope.scaling.replay import whatif
from scalescope.scaling.replay.buckets import find_buckets
from scalescope.scaling.replay.bursts import comes_in_bursts
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.replay.load import read_records
from scalescope.scaling.replay.simulate import mean_step_ns, simulate_steps
from scalescope.scaling.replay.whatif import Replayer
from tests.test_front_door import TINY

DATA = Path(__file__).parent / "data"


def _advised(name: str) -> RunAnalysis:
    (answer,) = analyze([DATA / name])
    assert isinstance(answer, RunAnalysis)
    return answer


def test_a_slow_loader_is_loaded_ahead() -> None:
    answer = _advised("cpu_ddp_n2")
    (loading,) = [one for one in answer.advice if "data.workers=4" in one.overrides]
    idle = sum(rank.idle_data_ms for rank in answer.ranks) / sum(rank.steps for rank in answer.ranks)
    assert loading.gain_ms == pytest.approx(idle, rel=0.3)
    assert loading.low_ms <= loading.gain_ms <= loading.high_ms


def test_a_loop_of_one_s_own_is_given_no_setting_of_ours() -> None:
    records, analysis = read_records(DATA / "cpu_ddp_n2"), analyze_run(DATA / "cpu_ddp_n2")
    advice = advise(Replayer(records), analysis, "what: my-model\nstrategy: script\n")
    assert advice and all(not one.overrides and one.elsewhere for one in advice)


def test_a_run_that_is_well_set_up_gets_no_advice() -> None:
    answer = _advised("gpt_ddp_n2")
    assert answer.replay is not None and answer.replay.faithful
    assert answer.advice == []


def test_what_only_profiling_costs_is_not_to_be_gained() -> None:
    analysis = analyze_run(DATA / "resnet50_ddp_n4")
    replayer = Replayer(read_records(DATA / "resnet50_ddp_n4"))
    window = replayer.replay.replayed_ms
    found = advise(replayer, analysis)
    assert found
    for measured, advised in ((window / 1.02, found), (window / 1.2, [])):
        analysis.step_times = StepTimes(measured_step_ms=measured, measured_step_p95_ms=measured, measured_steps=9,
                                        window_step_ms=window, profiling_overhead_ms=window - measured,
                                        profiling_overhead_fraction=window / measured - 1)  # fmt: skip
        assert advise(replayer, analysis) == advised
    assert analysis.advice == [] and "profile again" in run_verdict(analysis).advice


def test_how_gradients_come_is_told_from_the_trace() -> None:
    compiled = Replayer(read_records(DATA / "gpt_ddp_compile_n4"))
    steps = find_buckets(compiled.graph)
    assert not isinstance(steps, str)
    assert comes_in_bursts(compiled.graph, steps) == "a bucket"  # compiled around DDP
    eager = Replayer(read_records(DATA / "gpt_ddp_n2"))
    steps = find_buckets(eager.graph)
    assert not isinstance(steps, str) and comes_in_bursts(eager.graph, steps) is None
    assert "one by one" in (eager.predict(Change(spread=True)).reason or "")


def _handed_over_at_the_end(replayer: Replayer) -> None:
    """Make of a run that overlaps what it would be compiled inside of DDP: all gradients come when backward ends."""
    for graph in (replayer.traced, replayer.graph):
        _hand_over_at_the_end(graph)
    replayer.base = simulate_steps(replayer.graph)
    replayer.base_ns = mean_step_ns(replayer.base)
    replayer.replay.faithful = True  # to what it was changed into


def _hand_over_at_the_end(graph: Graph) -> None:
    steps = find_buckets(graph)
    assert not isinstance(steps, str)
    for step in steps:
        members = {at for index in step.transfers for at in graph.transfers[index].members.values()}
        for rank in graph.ranks:
            late = {one.activity for one in step.gradients[rank]} | members
            calls = graph.calls[rank]
            moved = [call for call in calls if call.launches in late or call.hands_over in members]
            last = max(at for at, call in enumerate(calls) if call.launches in late)
            kept = [call for call in calls[: last + 1] if call not in moved]
            graph.calls[rank] = [*kept, *moved, *calls[last + 1 :]]
            position = {call.launches: at for at, call in enumerate(graph.calls[rank]) if call.launches >= 0}
            for stream in graph.order[rank]:
                stream.sort(key=lambda at: position.get(at, -1))
            gradients = sorted((one.activity for one in step.gradients[rank]), key=lambda at: position[at])
            for at in members:
                if graph.activities[at].rank == rank:
                    graph.after[at] = [gradients[-1]]


def test_a_compile_order_that_hides_no_all_reduce_is_told_to_compile_around_ddp() -> None:
    replayer = Replayer(read_records(DATA / "gpt_ddp_n2"))
    overlapped = replayer.base_ns
    _handed_over_at_the_end(replayer)
    lost = replayer.base_ns - overlapped
    assert lost > 0.01 * overlapped
    steps = find_buckets(replayer.graph)
    assert not isinstance(steps, str) and comes_in_bursts(replayer.graph, steps) == "all at once"
    back = replayer.predict(Change(spread=True), quick=True)
    assert back.change_ms is not None and -back.change_ms * 1e6 == pytest.approx(lost, rel=0.3)
    advice = advise(replayer, analyze_run(DATA / "gpt_ddp_n2"))
    assert advice and advice[0].overrides == ["strategy.compile_by_bucket=true"]


def test_many_tiny_buckets_are_told_to_be_larger() -> None:
    answer = _advised("cpu_tiny_buckets_n2")  # 52 all-reduces of a gradient each, on two CPU ranks
    best = answer.advice[0]
    assert best.overrides[0].startswith("strategy.bucket_mib=") and "52 all-reduces" in best.because
    communicating = sum(rank.exposed_transfer_ms + rank.exposed_wait_ms for rank in answer.ranks) / sum(
        rank.steps for rank in answer.ranks
    )
    assert 0.3 * communicating < best.gain_ms < 1.5 * communicating


def test_a_study_follows_its_advice_and_tells_what_came_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    register()
    words = [*TINY, "name=s", "strategy.bucket_mib=0.001", "gpu_counts=[2]", "with_sweep=false"]
    study = plan_study(outline_study(words, train.verb(), sweep.verb()))
    folder, failed = run_study(study, print)
    assert not failed
    answer = _advised("cpu_tiny_buckets_n2")
    answer.name = "gpt_tiny-ddp-n2"
    assert follow(study, folder, [answer]) == []
    assert front_door.main(["analyze", str(folder.path)]) == 0
    assert "Advice followed: expected and measured" in capsys.readouterr().out
    (tried,) = read_study_answer(folder.analysis).tried
    assert tried.run == "gpt_tiny-ddp-n2-advice" and tried.overrides == answer.advice[0].overrides
    assert tried.expected_ms == answer.advice[0].gain_ms
    assert tried.base_step_ms is not None and tried.run_step_ms is not None
    assert tried.measured_ms == pytest.approx(tried.base_step_ms - tried.run_step_ms)
    assert (
        f"bucket_mib: {tried.overrides[0].partition('=')[2]}" in (folder.path / tried.run / "config.yaml").read_text()
    )
    assert len(read_study_answer(folder.analysis).efficiency) == 1  # what was tried is no point of the series
    assert "Advice followed" in folder.report.read_text()


def test_try_advice_is_a_setting_of_a_study() -> None:
    register()
    outline = outline_study([*TINY, "try_advice=true", "gpu_counts=[1]"], train.verb(), sweep.verb())
    assert outline.settings.try_advice


def test_why_a_run_has_no_advice_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = _advised("gpt_ddp_n2")
    assert is_looked_at(answer) and why_no_advice(answer) == "nothing that a setting could change is worth trying"
    assert not is_looked_at(analyze_run(DATA / "gpt_ddp_n2"))  # as a study's smaller runs, which nobody replays
    monkeypatch.setattr(whatif, "FAITHFUL", -1.0)
    answer = _advised("gpt_ddp_n2")
    assert is_looked_at(answer) and "nothing is predicted: replayed, the step is" in why_no_advice(answer)
    monkeypatch.setattr(loading, "MOST_ACTIVITIES", 100)
    answer = _advised("gpt_ddp_n2")
    assert is_looked_at(answer) and "the step is not replayed: 8,665 activities" in why_no_advice(answer)


def test_the_interval_of_what_advice_brought_holds_where_neighbouring_steps_are_alike() -> None:
    """Two runs of one job, whose steps drift as a GPU's clocks do: they differ by nothing but that drift."""
    generator = np.random.default_rng(0)

    def run() -> list[float]:
        steps = [0.0]
        for shock in generator.standard_normal(145):
            steps.append(0.6 * steps[-1] + float(shock))
        return [80 + step for step in steps[-45:]]

    pairs = [(run(), run()) for _ in range(300)]
    held = [abs(statistics.median(one) - statistics.median(other)) <= gain_half_ms(one, other) for one, other in pairs]
    assert 0.88 <= sum(held) / len(held) <= 1.0
    assert math.isnan(gain_half_ms([80.0] * 9, [80.0] * 45))  # too few to tell
