"""A job that was stopped, killed or resumed gives the losses of one that never was."""

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import torch
import torch.distributed as dist

from scalescope.records.files import read_rows
from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.train.strategies.base import Strategy
from tests.faults import FAULTS
from tests.made_once import made_once
from tests.train_runs import SMALL_GPT, ranks_of, start_in_world, train_in_world, wait_for

STEPS = 30
JOB = (*SMALL_GPT, "data=python_stdlib", "global_batch_size=8", "profiler=none", "warmup_steps=2", f"steps={STEPS}")


def losses(folder: RunFolder) -> list[float | None]:
    return [row.loss for row in folder.read_steps()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    def make(runs: Path) -> None:
        _, done = train_in_world(runs, "undisturbed", 2, *JOB, "checkpoint_every=10")
        assert done.returncode == 0, done.stderr

    return RunFolder(made_once(tmp_path_factory, "undisturbed", make) / "undisturbed")


def test_checkpoints_are_whole_and_the_newest_are_kept(undisturbed: RunFolder) -> None:
    assert sorted(path.name for path in undisturbed.checkpoints.iterdir()) == ["step-20", "step-30"]


def test_a_step_says_how_long_the_loop_saved_and_validated_before_it(undisturbed: RunFolder) -> None:
    rows = undisturbed.read_steps()
    assert [row.step for row in rows if row.saving_ms] == [10, 20]  # the last one has no step behind it
    assert all(len(row.saving_ms) == 2 and min(row.saving_ms) > 0 for row in rows if row.saving_ms)
    assert not any(row.validating_ms for row in rows)  # the first and the last are before and behind all steps


def copy_of(run: RunFolder, to: Path) -> RunFolder:
    """A copy that can be gone on with: its frozen config names the new place."""
    copy = RunFolder(Path(shutil.copytree(run.path, to / run.path.name)))
    copy.config.write_text(copy.config.read_text().replace(str(run.path.parent), str(to)))
    return copy


def go_on(copy: RunFolder, ranks: int) -> subprocess.CompletedProcess[str]:
    _, done = train_in_world(copy.path.parent, copy.path.name, ranks, *JOB, "checkpoint_every=10", "resume=true")
    return done


@pytest.mark.job
def test_a_job_goes_on_after_a_crash_also_on_fewer_ranks(undisturbed: RunFolder, tmp_path: Path) -> None:
    """As a crash after step 20 would leave it: later rows are there, and are done again."""
    copy = copy_of(undisturbed, tmp_path)
    shutil.rmtree(copy.checkpoints / "step-30")
    done = go_on(copy, 1)
    assert done.returncode == 0, done.stderr
    rows = copy.read_steps()
    assert losses(copy) == pytest.approx(losses(undisturbed), rel=1e-4)
    assert [row.attempt for row in rows] == [0] * 20 + [1] * 10
    assert [row.phase for row in rows][20:24] == ["warmup", "warmup", "steady", "steady"]
    assert [len(row.step_ms) for row in rows] == [2] * 20 + [1] * 10


def test_a_corrupt_checkpoint_is_named_with_the_way_out(undisturbed: RunFolder, tmp_path: Path) -> None:
    copy = copy_of(undisturbed, tmp_path)
    for part in (copy.checkpoints / "step-30").glob("*.distcp"):
        part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])
    done = go_on(copy, 1)
    assert done.returncode == FAULTS["checkpoint_corrupt"].exit_code
    assert "step-30 cannot be read" in done.stderr and "remove it to go on from step 20" in done.stderr


@pytest.mark.job
def test_a_job_that_is_asked_to_stop_saves_its_state_and_goes_on_also_on_fewer_ranks(
    undisturbed: RunFolder, tmp_path: Path
) -> None:
    """Four ranks that hold a slice each, and write in the background; two go on."""
    sharded = (*JOB, "strategy=fsdp2", "checkpoint_every=3", "checkpoint_mode=background")
    slow = "data.validation_samples=64"
    job = start_in_world(tmp_path, "asked", 4, *sharded, slow)
    folder = RunFolder(tmp_path / "asked")
    wait_for(folder.steps)
    for rank in ranks_of(job)[:1]:  # one rank hears it; all obey
        os.kill(rank, signal.SIGUSR1)
    out, said = job.communicate(timeout=200)
    info = folder.read_info()
    assert (job.returncode, info.status) == (75, "preempted"), said + out
    stopped = len(folder.read_steps())
    assert 0 < stopped < STEPS
    kept = sorted(path.name for path in folder.checkpoints.iterdir())
    assert f"step-{stopped}" in kept and not any(name.startswith(".") for name in kept)

    _, done = train_in_world(tmp_path, "asked", 2, *sharded, slow, "resume=true")
    assert done.returncode == 0, done.stderr
    assert "checkpoints held the loop up for" in done.stdout and "in the background" in done.stdout
    assert folder.read_info().status == "done"
    assert losses(folder) == pytest.approx(losses(undisturbed), rel=1e-4)


@pytest.mark.job
def test_a_job_that_is_killed_while_it_saves_goes_on_from_the_checkpoint_before_bit_for_bit(
    undisturbed: RunFolder, tmp_path: Path
) -> None:
    job = start_in_world(tmp_path, "killed", 2, *JOB, "checkpoint_every=1", "checkpoint_mode=background")
    folder = RunFolder(tmp_path / "killed")
    wait_for(folder.checkpoints / "step-3")
    ranks = ranks_of(job)
    while not stopped_inside_a_save(ranks, folder):
        assert job.is_running(), "it was never caught in a save"
    for rank in ranks:
        os.kill(rank, signal.SIGKILL)
    job.communicate(timeout=100)
    assert job.returncode == FAULTS["killed_while_saving"].exit_code
    newest = max(int(path.name.removeprefix("step-")) for path in folder.checkpoints.glob("step-*"))

    _, done = train_in_world(tmp_path, "killed", 2, *JOB, "checkpoint_mode=background", "resume=true")
    assert done.returncode == 0, done.stderr
    again = {row.step: row.loss for row in read_rows(folder.steps, StepRow) if row.attempt == 1}
    assert sorted(again) == list(range(newest, STEPS))
    assert list(again.values()) == losses(undisturbed)[newest:]
    assert not list(folder.checkpoints.glob(".*"))


def stopped_inside_a_save(ranks: list[int], folder: RunFolder) -> bool:
    """Hold the ranks where a checkpoint is half written; let them go on where it was too late for that."""
    if not list(folder.checkpoints.glob(".*.part/*.distcp")):
        return False
    for rank in ranks:
        os.kill(rank, signal.SIGSTOP)
    if list(folder.checkpoints.glob(".*.part/*.distcp")):
        return True
    for rank in ranks:
        os.kill(rank, signal.SIGCONT)
    return False


@pytest.mark.job
def test_a_checkpoint_that_cannot_be_written_costs_no_step(undisturbed: RunFolder, tmp_path: Path) -> None:
    """A file lies where the checkpoints' folder should be: to the writer, that is a full disk."""
    for mode in ("sync", "background"):
        folder = RunFolder(tmp_path / mode)
        job = start_in_world(tmp_path, mode, 1, *JOB, "checkpoint_every=10", f"checkpoint_mode={mode}")
        wait_for(folder.config)
        folder.checkpoints.touch()
        _, said = job.communicate(timeout=200)
        assert job.returncode == 0 and folder.read_info().status == "done", said
        assert said.count("could not be written") == 3 and "there is none yet" in said
        assert losses(folder) == pytest.approx(losses(undisturbed), rel=1e-4)


def test_the_thread_that_writes_stands_on_its_ranks_own_device_and_not_in_the_steps_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of Python's begins on device 0; which calls it makes is all that can be seen without one."""
    strategy = Strategy.__new__(Strategy)
    strategy.device = torch.device("cuda", 1)
    monkeypatch.setattr(strategy, "state", lambda: {"weight": torch.ones(3)}, raising=False)
    reported: list[tuple[str, object, str]] = []

    def note(what: str) -> Callable[[object], object]:
        def called(value: object) -> object:
            reported.append((what, value, threading.current_thread().name))
            return value

        return called

    for name in ("set_device", "Stream", "set_stream"):
        monkeypatch.setattr(torch.cuda, name, note(name))
    future = strategy.save_in_background(tmp_path / "saved", cast(dist.ProcessGroup, None))
    future.result(timeout=60)
    assert (tmp_path / "saved" / ".metadata").is_file()
    device = strategy.device
    assert [call[:2] for call in reported] == [("set_device", device), ("Stream", device), ("set_stream", device)]
    assert {thread for _, _, thread in reported} == {"checkpoint_0"}
