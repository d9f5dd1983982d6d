"""Faults of what a job stands on: its launcher, its terminal, disks, descriptors, W&B."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from tests.faults import FAULTS
from tests.faults_running import ENDLESS, end_of, steps_of
from tests.train_runs import FAST, SMALL_GPT, start, wait_for_rows


@pytest.mark.long
def test_a_job_that_nohup_keeps_outlives_its_terminal(tmp_path: Path) -> None:
    argv = (*SMALL_GPT, "data=python_stdlib", "profiler=none", "warmup_steps=2", "steps=100")
    command = ["nohup", sys.executable, "-m", "scalescope", "train", "launch.ranks=2", f"runs={tmp_path}", "name=one"]
    job = subprocess.Popen([*command, *FAST, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           start_new_session=True)  # fmt: skip
    wait_for_rows(tmp_path / "one" / "steps.jsonl", 1)
    os.killpg(job.pid, signal.SIGHUP)
    _, said = job.communicate(timeout=100)
    assert (job.returncode, RunFolder(tmp_path / "one").read_info().status) == (0, "done"), said
    assert steps_of(RunFolder(tmp_path / "one")) == list(range(100))


@pytest.mark.long
def test_a_full_disk_ends_a_job_with_whole_rows(small_disk: Path) -> None:
    job, folder = start(small_disk, "one", 2, *ENDLESS), RunFolder(small_disk / "one")
    wait_for_rows(folder.steps, 8)
    with (small_disk / "somebody-elses").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 4096)
    end_of(FAULTS["disk_full"], job, folder, time.monotonic())
    assert len(steps_of(folder)) >= 8 and steps_of(folder) == list(range(len(steps_of(folder))))


@pytest.mark.long
def test_an_unreachable_wandb_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    argv = (*SMALL_GPT, "data=python_stdlib", "profiler=none", "warmup_steps=2", "steps=30", "logger=wandb")
    limits = ("logger.wandb.mode=online", "logger.wandb.init_timeout_s=5", "logger.wandb.finish_timeout_s=5")
    since = time.monotonic()
    job, folder = start(tmp_path, "one", 2, *argv, *limits), RunFolder(tmp_path / "one")
    said = end_of(FAULTS["wandb_unreachable"], job, folder, since)
    assert folder.read_info().status == "done" and steps_of(folder) == list(range(30))
    assert "WandbSink failed and is left out" in said
