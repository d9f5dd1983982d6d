"""Composed configs and real training runs for the tests of train/."""

import os
import subprocess
import sys
import time
from pathlib import Path

from scalescope.launch.compose import compose_job, typed
from scalescope.records.folder import RunFolder
from scalescope.train.config import TrainConfig, register
from tests.worlds import World

SMALL_GPT = ("model=gpt_tiny", "model.layers=2", "model.width=64", "model.context=64")
FAST = ("precision=fp32", "launch.device=cpu", "launch.threads_per_rank=1", "logger=none")


def compose(*overrides: str) -> TrainConfig:
    """Return a checked config, as the front door composes it."""
    register()
    return typed(compose_job("train", overrides), TrainConfig)


def start(runs: Path, name: str, ranks: int, *overrides: str) -> subprocess.Popen[str]:
    """Start `scalescope train` as a user does."""
    command = [sys.executable, "-m", "scalescope", "train", f"launch.ranks={ranks}", f"runs={runs}", f"name={name}"]
    return subprocess.Popen(
        [*command, *FAST, *overrides],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
    )


def train(runs: Path, name: str, ranks: int, *overrides: str) -> tuple[RunFolder, subprocess.CompletedProcess[str]]:
    """Run `scalescope train` to its end, analysis and report included, and return its folder and what it said."""
    job = start(runs, name, ranks, *overrides)
    out, err = job.communicate(timeout=200)
    return RunFolder(runs / name), subprocess.CompletedProcess(job.args, job.returncode, out, err)


def start_in_world(runs: Path, name: str, ranks: int, *overrides: str) -> World:
    """Start it in a world that somebody else made, which ends with the job: no analysis, no report."""
    return World(ranks, ["scalescope", "train", f"runs={runs}", f"name={name}", *FAST, *overrides])


def train_in_world(
    runs: Path, name: str, ranks: int, *overrides: str
) -> tuple[RunFolder, subprocess.CompletedProcess[str]]:
    """Run it there to its end, and return its folder and what it said."""
    job = start_in_world(runs, name, ranks, *overrides)
    out, err = job.communicate(timeout=200)
    return RunFolder(runs / name), subprocess.CompletedProcess([], job.returncode, out, err)


def wait_for(path: Path, limit_s: float = 180.0) -> None:
    """Return when a file is there."""
    until = time.monotonic() + limit_s
    while not path.exists():
        assert time.monotonic() < until, f"{path} never came"
        time.sleep(0.02)


def wait_for_rows(path: Path, rows: int, limit_s: float = 180.0) -> None:
    """Return when a file holds so many rows."""
    until = time.monotonic() + limit_s
    while not path.exists() or path.read_bytes().count(b"\n") < rows:
        assert time.monotonic() < until, f"{path} never got {rows} rows"
        time.sleep(0.02)


def ranks_of(launcher: "subprocess.Popen[str] | World") -> list[int]:
    """Return the process ids of a job's ranks, lowest first."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    return sorted(int(child) for child in children)
