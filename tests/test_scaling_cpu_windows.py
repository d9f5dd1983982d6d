"""What is said of a plain window of ranks on CPUs: waits inside operators, steps now and then, what recording costs."""

from pathlib import Path

import pytest

from scalescope.report.as_run.recording import as_run_sentence
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.finding.figures import IN_STEPS
from tests.gloo_traces import GlooJob, analysed

LAYERS = 4


def tensor_parallel(inside: str, waits: str | None, late_ms: float) -> GlooJob:
    """Six steps of layers that each reduce in their forward pass, by a function that hands over and waits."""
    job = GlooJob()
    for number in range(3, 9):
        job.step(number)
        job.sleep(1, late_ms)
        for _ in range(LAYERS):
            job.compute(4.0, calls=8)
            job.all_reduce(1.0, inside, waits)
        job.compute(2.0, "aten::add_", calls=4)
    return job


@pytest.mark.parametrize(
    ("inside", "waits"),
    [("Redistribute", "_c10d_functional::wait_tensor"), ("Red", None)],
    ids=["as a tensor's own", "in a function of the user's own"],
)
def test_a_wait_inside_an_operator_is_no_compute_and_names_the_rank_that_is_waited_for(
    tmp_path: Path, inside: str, waits: str | None
) -> None:
    analysis = analysed(tensor_parallel(inside, waits, late_ms=15.0).write(tmp_path))
    traced = {one.rank: one for one in analysis.ranks}
    assert traced[0].exposed_wait_ms / traced[0].steps == pytest.approx(15, abs=0.5)
    assert traced[0].compute_ms / traced[0].steps == pytest.approx(18, abs=1.0)
    _, ranks = step_as_run(analysis)
    for one in ranks:
        for part in ("compute", "exposed_wait", "exposed_transfer", "idle_launch"):
            whole = traced[one.rank]
            assert one.part_ms(part) == pytest.approx(whole.part_ms(part) / whole.steps, abs=1.0), part
    first = analysis.findings[0]
    assert (first.code, first.rank) == ("host_stall", 1) and first.ms == pytest.approx(15, abs=1.5)


@pytest.mark.parametrize("name", ["Scaled", "ScaledBackward"])
def test_a_function_of_python_that_stands_still_computes_nothing_and_costs_its_rank(tmp_path: Path, name: str) -> None:
    """*14.1 ms are exposed wait, find the rank that comes last* was told of 27 ms a step in a backward pass."""
    job = GlooJob()
    for number in range(3, 9):
        job.step(number)
        job.compute(4.0, calls=8)
        for rank, ms in enumerate((0.0, 20.0)):
            begun = job.now[rank] + 1_000
            job.compute(1.0, rank=rank)
            job.sleep(rank, ms + 0.001)
            job.operator(name, rank, begun)
            job.sleep(rank, 0.01)
        if name == "Scaled":  # torch runs its backward pass as well
            for rank in range(2):
                begun = job.now[rank] + 1_000
                job.compute(1.0, rank=rank)
                job.operator("ScaledBackward", rank, begun)
                job.sleep(rank, 0.01)
        job.compute(4.0, calls=8)
        job.all_reduce(1.0)
    analysis = analysed(job.write(tmp_path))
    traced = {one.rank: one for one in analysis.ranks}
    computes = 9.0 if name == "ScaledBackward" else 10.0
    for one in traced.values():
        assert one.compute_ms / one.steps == pytest.approx(computes, abs=0.5)
    assert traced[1].idle_launch_ms / traced[1].steps == pytest.approx(20, abs=0.5)
    first = analysis.findings[0]
    assert (first.code, first.rank) == ("host_stall", 1) and first.ms == pytest.approx(20, rel=0.05)


def test_a_function_that_takes_as_long_in_both_passes_computes_by_what_is_no_operator(tmp_path: Path) -> None:
    """An extension in C, or a stage of a pipeline whose work is one: 99.5% of its step was told as a bubble."""
    job = GlooJob()
    for number in range(3, 9):
        job.step(number)
        for name, ms in (("Solver", 10.0), ("SolverBackward", 20.0)):
            for rank in range(2):
                begun = job.now[rank] + 1_000
                job.sleep(rank, ms)
                job.operator(name, rank, begun)
                job.sleep(rank, 0.01)
        job.all_reduce(1.0)
    analysis = analysed(job.write(tmp_path))
    assert all(one.compute_ms / one.steps == pytest.approx(30, abs=0.5) for one in analysis.ranks)


def test_a_compiled_backward_pass_computes_though_it_calls_no_operator(tmp_path: Path) -> None:
    job = GlooJob()
    for number in range(2, 6):
        job.step(number)
        job.compute(10.0)
        job.compute(20.0, "CompiledFunctionBackward")
        job.all_reduce(1.0)
    analysis = analysed(job.write(tmp_path))
    assert all(one.compute_ms / one.steps == pytest.approx(30, abs=0.5) for one in analysis.ranks)


def with_validation(every: int, steps: int, first: int = 3, ms: float = 180.0) -> GlooJob:
    """A step of 20 ms, and a validation on rank 0 after each so many: the others wait in the step after."""
    job = GlooJob()
    for number in range(first, first + steps):
        job.step(number)
        job.compute(15.0, calls=20)
        job.all_reduce(5.0)
        if number % every == every - 1:
            job.compute(ms, "aten::linear", rank=0, calls=20)
    return job


def test_a_validation_on_one_rank_leads_with_how_many_steps_it_takes_and_what_it_costs_in_the_mean(
    tmp_path: Path,
) -> None:
    analysis = analysed(with_validation(4, 20).write(tmp_path))
    first = analysis.findings[0]
    assert (first.code, first.rank) == ("more_work", 0) and first.ms == pytest.approx(45, rel=0.03)
    assert first.low_ms is not None and first.low_ms > 40
    (row,) = (row for row in first.evidence if row.name == IN_STEPS)
    assert (row.calls, row.value) == (5, 20) and row.ms == pytest.approx(180, rel=0.02)
    assert "In 5 of 20 profiled steps it computes for 18" in run_verdict(analysis).headline


def test_every_second_step_may_be_a_longer_one(tmp_path: Path) -> None:
    first = analysed(with_validation(2, 10).write(tmp_path)).findings[0]
    assert (first.code, first.rank) == ("more_work", 0) and first.ms == pytest.approx(90, rel=0.03)


def test_two_such_steps_of_a_window_may_come_less_often_or_more(tmp_path: Path) -> None:
    first = analysed(with_validation(4, 8).write(tmp_path)).findings[0]
    assert first.rank == 0 and first.ms == pytest.approx(45, rel=0.03)
    assert first.low_ms is not None and first.high_ms is not None and first.low_ms < 20 < 90 < first.high_ms


@pytest.mark.parametrize("step_ms", [None, 65.0])
def test_what_recording_cannot_cost_is_not_taken_for_its_cost(tmp_path: Path, step_ms: float | None) -> None:
    """A rank begins the window late by a validation before it, and has another one in it: a replay in full swing has
    neither wait, and 12 of its 60 ms were told as recording's.
    """
    analysis = analysed(with_validation(4, 20, first=4).write(tmp_path), step_ms)
    assert analysis.as_run is not None
    assert (analysis.as_run.reason, analysis.as_run.step_ms, analysis.as_run.recording_ms) == ("apart", None, None)
    assert "All figures are of the profiled steps" in as_run_sentence(analysis)
    assert (analysis.as_run.untraced_ms is None) == (step_ms is None)
    step, ranks = step_as_run(analysis)
    window = sum(one.window_ms / one.steps for one in analysis.ranks) / len(analysis.ranks)
    assert step.value == pytest.approx(window, rel=0.01)
    assert [one.compute_ms for one in ranks] == [one.compute_ms / one.steps for one in analysis.ranks]


def test_a_rank_whose_loader_is_late_every_few_steps_is_named(tmp_path: Path) -> None:
    job = GlooJob()
    for number in range(3, 15):
        job.step(number)
        job.compute(15.0, calls=20)
        if number % 4 == 0:
            job.sleep(1, 60.0)
        job.all_reduce(5.0)
    first = analysed(job.write(tmp_path)).findings[0]
    assert (first.code, first.rank) == ("host_stall", 1) and first.ms == pytest.approx(15, rel=0.1)


def test_steps_that_differ_by_chance_are_none_that_come_now_and_then(tmp_path: Path) -> None:
    job = GlooJob()
    for number in range(3, 15):
        job.step(number)
        for rank in (0, 1):
            job.compute(15.0 + (7 * number + 5 * rank) % 6, rank=rank, calls=20)
        job.all_reduce(5.0)
    findings = analysed(job.write(tmp_path)).findings
    assert all(row.name != IN_STEPS for one in findings for row in one.evidence)


def test_a_frame_of_python_is_recorded_in_no_more_than_there_is_time_for_one(tmp_path: Path) -> None:
    """30,000 frames in 30 ms, half of them the tokenizer's own work: at half a microsecond each, recording took all."""
    job = GlooJob(world_size=1)
    for number in range(3, 8):
        job.step(number)
        job.frames(0, 5_000, 0.4)
        job.sleep(0, 20.0)
        job.compute(100.0, calls=40)
    analysis = analysed(job.write(tmp_path))
    assert analysis.as_run is not None and analysis.as_run.recording_ms is not None
    assert analysis.as_run.recording_ms.value < 1.0


def test_what_compiles_in_a_step_is_no_compute_and_costs_the_step(tmp_path: Path) -> None:
    """*99.4% of the 4,214 ms step is compute* was told, *nothing between the ranks is wrong*, and *torch.compile*."""
    job = GlooJob()
    for number in range(2, 7):
        job.step(number)
        job.compute(10.0)
        job.compile(200.0, runs_ms=4.0)
        job.all_reduce(1.0)
    (run,) = analyze([job.write(tmp_path)], jobs=1)
    assert isinstance(run, RunAnalysis)
    first = run.findings[0]
    assert (first.code, first.rank) == ("recompilation", None) and first.ms == pytest.approx(200, rel=0.02)
    bounded = [one for one in run.steps if one.step < 6]
    assert all(one.compute_ms == pytest.approx(14, abs=0.1) for one in bounded)
    assert all(one.idle_launch_ms == pytest.approx(200, abs=1) for one in bounded)
