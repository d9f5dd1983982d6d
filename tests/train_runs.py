"""Composed configs and real training runs for the tests of train/."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

from launch.compose import compose_job, typed
from records.folder import RunFolder
from train.config import TrainConfig, register

SMALL_GPT = ("model=gpt_tiny", "model.layers=2", "model.width=64", "model.context=64")
FAST = ("precision=fp32", "launch.device=cpu", "launch.threads_per_rank=1", "logger=none")


def compose(*overrides: str) -> TrainConfig:
    """Return a checked config, as the front door composes it."""
    register()
    return cast(TrainConfig, typed(compose_job("train", overrides)))


def start(runs: Path, name: str, ranks: int, *overrides: str) -> subprocess.Popen[str]:
    """Start `scalescope train` as a user does."""
    command = [sys.executable, "-m", "scalescope", "train", f"runs={runs}", f"name={name}", f"launch.ranks={ranks}"]
    return subprocess.Popen(
        [*command, *FAST, *overrides],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
    )


def train(runs: Path, name: str, ranks: int, *overrides: str) -> tuple[RunFolder, subprocess.CompletedProcess[str]]:
    """Run `scalescope train` to its end, and return its folder and what it said."""
    job = start(runs, name, ranks, *overrides)
    out, err = job.communicate(timeout=200)
    return RunFolder(runs / name), subprocess.CompletedProcess(job.args, job.returncode, out, err)


def wait_for(path: Path, limit_s: float = 60.0) -> None:
    """Return when a file is there."""
    until = time.monotonic() + limit_s
    while not path.exists():
        assert time.monotonic() < until, f"{path} never came"
        time.sleep(0.02)
