"""A job that was stopped, killed or resumed gives the losses of one that never was."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from train_runs import SMALL_GPT, start, train, wait_for

from records.folder import RunFolder

STEPS = 30
JOB = (*SMALL_GPT, "data=python_stdlib", "global_batch_size=8", "profiler=none", "warmup_steps=2", f"steps={STEPS}")


def losses(folder: RunFolder) -> list[float | None]:
    return [row.loss for row in folder.read_steps()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFolder]:
    folder, done = train(tmp_path_factory.mktemp("runs"), "undisturbed", 2, *JOB, "checkpoint_every=10")
    assert done.returncode == 0, done.stderr
    yield folder


def ranks_of(launcher: subprocess.Popen[str]) -> list[int]:
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    return [int(child) for child in children]


def test_checkpoints_are_whole_and_the_newest_are_kept(undisturbed: RunFolder) -> None:
    assert sorted(path.name for path in undisturbed.checkpoints.iterdir()) == ["step-20", "step-30"]


def test_a_resumed_job_goes_on_bit_for_bit(undisturbed: RunFolder, tmp_path: Path) -> None:
    """As a crash after step 20 would leave it: later rows and the later checkpoint are there, and are done again."""
    shutil.copytree(undisturbed.path, tmp_path / "undisturbed")
    shutil.rmtree(tmp_path / "undisturbed" / "checkpoints" / "step-30")
    expected = losses(undisturbed)
    text = (tmp_path / "undisturbed" / "config.yaml").read_text()
    (tmp_path / "undisturbed" / "config.yaml").write_text(text.replace(str(undisturbed.path.parent), str(tmp_path)))
    folder, done = train(tmp_path, "undisturbed", 2, *JOB, "checkpoint_every=10", "resume=true")
    assert done.returncode == 0, done.stderr
    assert losses(folder) == expected
    assert [row.attempt for row in folder.read_steps()] == [0] * 20 + [1] * 10
    assert [row.phase for row in folder.read_steps()][20:24] == ["warmup", "warmup", "steady", "steady"]


def test_a_corrupt_checkpoint_is_named_with_the_way_out(undisturbed: RunFolder, tmp_path: Path) -> None:
    copy = tmp_path / "undisturbed"
    shutil.copytree(undisturbed.path, copy)
    (copy / "config.yaml").write_text(
        (copy / "config.yaml").read_text().replace(str(undisturbed.path.parent), str(tmp_path))
    )
    for part in (copy / "checkpoints" / "step-30").glob("*.distcp"):
        part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])
    _, done = train(tmp_path, "undisturbed", 2, *JOB, "checkpoint_every=10", "resume=true")
    assert done.returncode == 3
    assert "step-30 cannot be read" in done.stderr and "remove it to go on from step 20" in done.stderr


def test_a_job_that_is_asked_to_stop_saves_its_state_and_goes_on_when_run_again(
    undisturbed: RunFolder, tmp_path: Path
) -> None:
    slow = (*JOB, "checkpoint_every=10", "data.validation_samples=64")
    job = start(tmp_path, "asked", 2, *slow)
    folder = RunFolder(tmp_path / "asked")
    wait_for(folder.steps)
    for rank in ranks_of(job)[:1]:  # one rank hears it; all obey
        os.kill(rank, signal.SIGUSR1)
    out, said = job.communicate(timeout=200)
    info = folder.read_info()
    assert (job.returncode, info.status) == (75, "preempted"), said + out
    stopped = len(folder.read_steps())
    assert 0 < stopped < STEPS
    assert (folder.checkpoints / f"step-{stopped}").is_dir()

    _, done = train(tmp_path, "asked", 2, *slow, "resume=true")
    assert done.returncode == 0, done.stderr
    assert folder.read_info().status == "done"
    assert losses(folder) == losses(undisturbed)
