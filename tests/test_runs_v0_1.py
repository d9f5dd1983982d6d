"""Run folders of every kind that version 0.1 made are read, reported and gone on with."""

import re
import shutil
import sysconfig
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from scalescope.cli import front_door
from scalescope.records.folder import RunFolder
from scalescope.scaling.answer import RunAnalysis, read_run_answer
from scalescope.scaling.study_answer import Waterfall, read_study_answer
from tests.test_front_door import SCALESCOPE, call

OLD = Path(__file__).parent / "data" / "runs_v0.1"
#: What goes by how long the job's steps are.
LENGTH = {"samples_per_s": 0.0, "tokens_per_s": None, "mfu_of_measured": None, "hfu_of_measured": None,
          "joules_per_sample": None}  # fmt: skip
CPU = ["launch.device=cpu", "launch.threads_per_rank=1", "launch.ranks=2"]
TRAIN = (
    "model=gpt_tiny model.layers=1 model.heads=1 model.width=8 model.context=16 model.batch_size=2 precision=fp32 "
    "warmup_steps=1 profiler.warmup=1 profiler.active=1 data=python_stdlib data.validation_samples=4 steps=12 "
    "checkpoint_every=6 keep_checkpoints=2 name=train resume=true"
).split()
SWEEP = "operations=[all_reduce,all_gather] group_sizes=[2] name=sweep resume=true".split()


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "runs"))


def measured(answer: RunAnalysis) -> list[object]:
    """What a run's traces and rows say, whatever is concluded from it."""
    reported = answer.efficiency
    if reported is not None and reported.orchestration > 1.01:  # a contradiction, which is not told any more
        reported = None
    times = answer.step_times  # its overhead was a mean less a median then, and is a difference of medians now
    steps = None if times is None else (times.measured_steps, times.window_step_ms)
    # that the machine was unsteady was no matter of the traces' quality then
    quality = "good" if answer.quality.unsteady else answer.quality.verdict
    # by whose samples it is counted was not told then; and a step was as long as its slowest rank's
    throughput = None if answer.throughput is None else replace(answer.throughput, **LENGTH, told_a_rank=None)
    # nor how many operators a step had, on how much they worked, what its ranks waited for cores, where hosts stood
    untold = {"operators": None, "times_load": None, "times_inputs": None, "core_wait_ms": None, "stood": None}
    untold["longer_in"] = None
    split = [replace(one, **untold) for one in answer.steps]
    return [answer.ranks, split, answer.collectives, reported, steps, throughput, answer.model,
            answer.world_size, quality]  # fmt: skip


@pytest.mark.parametrize("kind", ["train", "script"])
def test_a_run_is_read_as_it_was_then_and_reported(kind: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    then = read_run_answer(runs / kind / "analysis.json")
    for verb in ("analyze", "report", "perfetto"):
        assert front_door.main([verb, str(runs / kind)]) == 0, capsys.readouterr().err
    folder = RunFolder(runs / kind)
    assert measured(read_run_answer(folder.analysis)) == measured(then)
    assert "where its time goes is not known" not in folder.report.read_text()


def test_a_step_is_the_jobs_and_no_longer_than_its_slowest_ranks(runs: Path) -> None:
    """Of two ranks that were late by turns, the median step was told as 46.5 ms where the job took 33.5."""
    for run, kind in ((runs / kind, kind) for kind in ("train", "script")):
        then = read_run_answer(run / "analysis.json").step_times
        assert front_door.main(["analyze", str(run)]) == 0
        now = read_run_answer(run / "analysis.json").step_times
        assert then is not None and now is not None and then.measured_step_ms and now.measured_step_ms
        assert 0.7 * then.measured_step_ms < now.measured_step_ms <= then.measured_step_ms, kind


def traced(waterfall: Waterfall) -> tuple[Waterfall, list[object]]:
    """What the traces alone say of a growth, and of all kernel kinds in all.

    The measured growth was not laid beside it then, and some kernels are of another kind by now.
    """
    kinds = waterfall.kinds
    totals = [
        pytest.approx(sum(getattr(kind, name) for kind in kinds), abs=1e-6)
        for name in ("from_ms", "to_ms", "inflation_ms", "more_work_ms", "inflation_beside_ms")
    ]
    alone = msgspec.structs.replace(
        waterfall, measured_growth_ms=None, measured_growth_low_ms=None, measured_growth_high_ms=None, noise_ms=None,
        unsteady=False, kinds=[],
    )  # fmt: skip
    return alone, [[kind.kind for kind in kinds], *totals]


def test_a_study_is_read_as_it_was_then_and_reported(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    then = read_study_answer(runs / "study" / "analysis.json")
    for verb in ("analyze", "report", "finish"):
        assert front_door.main([verb, str(runs / "study")]) == 0, capsys.readouterr().err
    now = read_study_answer(runs / "study" / "analysis.json")
    length = dict.fromkeys(("step_ms", "samples_per_s", "tokens_per_s", "speedup", "efficiency"), 0.0)
    points = [[replace(point, **length) for point in answer.efficiency] for answer in (now, then)]
    assert now.runs == then.runs and points[0] == points[1]
    assert [traced(one) for one in now.waterfall] == [traced(one) for one in then.waterfall]
    for name in ("gpt_tiny-ddp-n1", "gpt_tiny-ddp-n2"):
        before = read_run_answer(OLD / "study" / name / "analysis.json")
        assert measured(read_run_answer(runs / "study" / name / "analysis.json")) == measured(before)
    assert (runs / "study" / "report.html").is_file()


def test_a_sweep_is_read_compared_and_reported(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = str(runs / "sweep")
    for argv in (["analyze", sweep], ["report", sweep], ["fit", sweep], ["compare", sweep, str(runs / "study")]):
        assert front_door.main(argv) == 0, capsys.readouterr().err
    assert "ratio" in capsys.readouterr().out
    assert len(RunFolder(runs / "sweep").read_sweep()) == 8


@pytest.mark.job
def test_training_goes_on_with_the_losses_that_it_would_have_had(runs: Path) -> None:
    """As a crash after step 8 would leave it: two rows beyond the checkpoint, which are done again.

    It read the standard library of one Python: another's text has other losses, and goes on all the same.
    """
    folder = RunFolder(runs / "train")
    then = folder.read_steps()
    text, here = folder.config.read_text(), sysconfig.get_path("stdlib")
    folder.config.write_text(re.sub(r"^  path: .*$", f"  path: {here}", text, flags=re.MULTILINE))
    same_text = folder.config.read_text() == text
    folder.steps.write_bytes(b"".join(folder.steps.read_bytes().splitlines(keepends=True)[:8]))
    done = call(SCALESCOPE, "train", *TRAIN, *CPU, cwd=runs.parent, WANDB_MODE="offline", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    now = folder.read_steps()
    assert [row.attempt for row in now] == [0] * 6 + [1] * 6 and folder.read_info().status == "done"
    before = len(now) if same_text else 6
    assert [row.loss for row in now[:before]] == pytest.approx([row.loss for row in then[:before]], rel=1e-6)
    assert all(row.loss is not None and 0 < row.loss < 10 for row in now)
    assert (folder.checkpoints / "step-12").is_dir() and folder.report.is_file()


@pytest.mark.job
def test_a_sweep_goes_on_with_what_it_lacks(runs: Path) -> None:
    folder = RunFolder(runs / "sweep")
    then = folder.read_sweep()
    folder.sweep.write_bytes(b"".join(folder.sweep.read_bytes().splitlines(keepends=True)[:5]))
    done = call(SCALESCOPE, "sweep", *SWEEP, "sizes=1KiB..64KiB x4", *CPU, cwd=runs.parent)
    assert done.returncode == 0, done.stderr
    now = folder.read_sweep()
    assert now[:5] == then[:5] and all(row.attempt == 1 and row.status == "measured" for row in now[5:])
    assert [(row.operation, row.bytes) for row in now] == [(row.operation, row.bytes) for row in then]
