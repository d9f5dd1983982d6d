"""What a step that is longer every so often does: all that is much of it, the larger part first, and its one size."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.report.replayed import fewer_replayed
from scalescope.report.steadiness import recording_line
from scalescope.report.text.findings import because
from scalescope.report.text.recurring import recurring_because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import AsRun, Quality, RunAnalysis
from scalescope.scaling.answer_rows import StoodStill
from scalescope.scaling.finding.figures import IN_STEPS
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.kinds import is_now_and_then
from scalescope.scaling.rank.kernels import longest_beyond
from scalescope.scaling.rank.partition import Windows
from scalescope.scaling.trace.intervals import Intervals
from scalescope.scaling.verdicts.now_and_then import with_now_and_then
from tests.gloo_traces import GlooJob, analysed
from tests.report_samples import run_with_traces
from tests.test_scaling_window_ends import split


def _traces(path: Path) -> Path:
    """Write traces of ten steps of some 100 ms, at the end of one of which rank 0 draws values for 120 ms in all, and
    then stands still for 256.
    """
    job = GlooJob()
    for number in range(22, 32):
        job.step(number)
        for at in range(24):
            job.compute(3.5, ("aten::linear", "aten::gelu", "aten::mul", "aten::add")[at % 4])
            for rank in range(2):
                job.sleep(rank, 0.3 * (1 + (at + number + rank) % 3 / 10))
        job.all_reduce(2.0)
        job.compute(3.0, "aten::lerp_")
        if number == 27:
            for _ in range(4):
                job.compute(30.0, "aten::randn", rank=0)
                job.sleep(0, 4.0)
            job.sleep(0, 240.0)
    return job.write(path)


def _of_job(path: Path, longer_ms: float) -> RunAnalysis:
    """Return what is told of the same traces in a job whose every tenth step is so much longer in the mean."""
    folder, recorded = run_with_traces(path / "run", _traces(path / "traces"))
    with folder.step_writer() as writer:
        for step in range(90):
            long = longer_ms if step % 10 == 7 else 0.0
            phase = "profile" if step in recorded else "steady"
            ms = [100.0 + step % 2 / 5 + long] * 2
            writer.append(StepRow(step=step, phase=phase, step_ms=ms, samples_per_s=1.0))  # type: ignore[arg-type]
    (answer,) = analyze([RunFolder(folder.path).path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    assert answer.recurring is not None and answer.recurring.every == 10
    return answer


def _looks(path: Path, operators: Sequence[str], ranks: Sequence[int] = (0,)) -> Finding:
    """Return what is told of ten steps of 60 ms, in two of which ranks run these operators for 75 ms more."""
    job = GlooJob()
    for number in range(20, 30):
        job.step(number)
        job.compute(57.0, "aten::linear", calls=12)
        job.all_reduce(2.0)
        job.compute(1.0, "aten::histc")
        for rank in ranks if number % 5 == 3 else ():
            for name in operators:
                job.compute(75.0 / len(operators), name, rank=rank, calls=20)
    (found,) = (one for one in analysed(job.write(path)).findings if is_now_and_then(one))
    return found


@pytest.mark.parametrize("ranks", [(0,), (0, 1)])
def test_the_operator_is_named_that_longer_steps_compute_in(tmp_path: Path, ranks: tuple[int, ...]) -> None:
    """Who reads *for what rank 0 computes* of a histogram of every parameter looks for it in the whole loop."""
    found = _looks(tmp_path, ["aten::histc"], ranks)
    assert (found.code, found.rank) == ("more_work", 0 if len(ranks) == 1 else None)
    assert "longer than in the others, most of it in aten::histc" in because(found)


def test_none_is_named_where_no_one_takes_most_of_it(tmp_path: Path) -> None:
    found = _looks(tmp_path, ["aten::conv2d", "aten::relu", "aten::addmm"])
    assert found.code == "more_work" and "most of it" not in because(found)


def test_what_an_operator_waits_for_is_none_of_what_it_takes() -> None:
    """Of two names the one is longer that computes; the other spans a wait in the same step."""
    edges = np.arange(0, 500, 100)
    start = np.sort(np.concatenate([edges[:4], edges[:4] + 50]))
    end = start + 10
    end[2], end[3] = 145, 180  # in the second step
    computes = Intervals(start, np.where(end == 145, 112, end))
    windows = Windows(list(range(7, 11)), edges, open_ended=False)
    told = longest_beyond(Intervals(start, end), np.arange(8) % 2, computes, windows, ["waits", "computes"])
    assert told[8] == ("computes", 20) and told[7][1] == 0


def test_a_step_that_saves_more_than_it_computes_is_told_by_both_and_the_larger_first(tmp_path: Path) -> None:
    """Of a checkpoint that takes 125 ms of drawing values and 256 ms of writing *for what rank 0 computes* was told,
    and *it computes 2.03× as long as in the others, and launch more, as in validation*.
    """
    run = _of_job(tmp_path, 380.0)
    assert run.recurring is not None and run.recurring.doing is not None
    assert run.recurring.doing.code == "host_stall"
    told = recurring_because(run.recurring)
    assert ", for what rank 0 does that is not recorded (such as saving) and what it computes" in told, told
    assert "launch" not in told and "validation" not in told, told
    still, computes = told.index("its host runs no operator for 25"), told.index(", and computes for 1")
    assert still < computes


def test_a_step_whose_size_is_not_the_mean_one_s_says_of_what_each_size_is(tmp_path: Path) -> None:
    """*Every 10th step takes 580.5 ms longer* and *those take 382.5 ms longer* stood two sentences apart."""
    alike, unlike = (_of_job(tmp_path / str(ms), ms) for ms in (377.0, 580.0))
    assert alike.recurring is not None and unlike.recurring is not None
    assert "in the mean" not in recurring_because(alike.recurring)
    told = recurring_because(unlike.recurring)
    assert "; that step takes 37" in told and told.endswith(" ms longer in all, the mean one of them 580.1 ms"), told


@pytest.mark.parametrize("given_ms", [100.0, 90.0])
def test_recording_s_share_of_a_longer_step_is_that_of_the_steps_beside_it(given_ms: float) -> None:
    """One step was 382.5, 294.8 and 278.7 ms longer, by a run folder, by its traces, and by those with a step given:
    the step without recording, of those beside it, was laid beside the mean of all, the longer one among them.
    """
    run = RunAnalysis(name="x", world_size=1, activity="gpu", quality=Quality(verdict="good"), steps_by="profiler")
    for step in range(10):
        long = step == 7
        run.steps.append(split(0, step, compute=90.0 if long else 30.0, idle_launch=310.0 if long else 70.0))
    run.as_run = AsRun(
        step_ms=given_ms, low_ms=given_ms, high_ms=given_ms, source="given", step_numbers=list(range(7)), steps=7
    )
    (found,) = with_now_and_then([], run)
    assert found.code == "more_work"
    assert next(row.ms for row in found.evidence if row.name == IN_STEPS) == pytest.approx(300.0 * given_ms / 100.0)
    said = because(found)
    assert "the ranks compute 3.00× as long" in said and "and launch more" in said and ": it takes " in said, said
    assert "it computes 3.00× as long as in the others, and launches more" in because(
        msgspec.structs.replace(found, rank=0)
    )


def test_traces_alone_tell_one_size_of_a_step(tmp_path: Path) -> None:
    run = analysed(_traces(tmp_path / "traces"), 97.0)
    long = next(one for one in run.findings if is_now_and_then(one))
    assert next(row.ms for row in long.evidence if row.name == IN_STEPS) == pytest.approx(376.0, rel=0.02)
    told = run_verdict(run).headline
    assert "one step of 10 took 376.0 ms longer on rank 0" in told, told
    assert "for 256.0 ms longer than in the others" in told and "and computes for 120.0 ms longer" in told, told


@pytest.mark.parametrize(("stood_ms", "code"), [(60.0, "host_stall"), (None, "unsteady")])
def test_a_host_that_slept_is_not_slowed_by_other_work(stood_ms: float | None, code: str) -> None:
    """*Rank 1's host takes 1.4 times as long for everything, as where other work slows it*, of 6 ms and not of the 60
    that it slept: its caches were cold.
    """
    run = RunAnalysis(name="x", world_size=2, activity="cpu", quality=Quality(verdict="good"), steps_by="profiler")
    for step in range(6):
        late = 60.0 if step in (2, 5) else 0.0
        run.steps.append(split(0, step, compute=4.0, exposed_wait=1.0 + late))
        run.steps.append(split(1, step, compute=4.0, idle_launch=1.0 + late))
        run.steps[-1].host_pace = 1.4 if late else 1.0
        if late and stood_ms is not None:
            run.steps[-1].stood = StoodStill(ms=stood_ms, before="autograd.backward", place="after_forward")
    (found,) = with_now_and_then([], run)
    assert found.code == code and found.rank == (1 if code == "host_stall" else None)


def test_of_how_many_profiled_steps_figures_are_is_told_with_its_reason(tmp_path: Path) -> None:
    """*Figures are of 7 of the 10 profiled steps* did not say why, and a page drew one *of 8 steps that all ranks
    recorded whole*, as all ten were.
    """
    run = _of_job(tmp_path, 377.0)
    fewer = fewer_replayed(run)
    assert fewer is not None and (fewer.steps, fewer.of) == (7, 10)
    because_of = "at most 8 are read, and the last of these only tells where the one before it ends"
    first, last = fewer.numbers[0], fewer.numbers[-1]
    assert fewer.why == because_of
    assert f"The profiled steps that figures are of are {first} to {last}: {because_of}." in recording_line(run)
    assert last - first == 6 and fewer.of_which == f"7 of the 10 profiled steps, {first} to {last}"
    assert replace(fewer, steps=9).why == "the last only tells where the one before it ends"
    assert not replace(fewer, first=False).why
