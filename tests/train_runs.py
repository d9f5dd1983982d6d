"""Composed configs and real training runs for the tests of train/."""

import os
import subprocess
import sys
import time
from pathlib import Path

from scalescope.launch.compose import compose_job, typed
from scalescope.records.folder import RunFolder
from scalescope.train.config import TrainConfig, register

SMALL_GPT = ("model=gpt_tiny", "model.layers=2", "model.width=64", "model.context=64")
FAST = ("precision=fp32", "launch.device=cpu", "launch.threads_per_rank=1", "logger=none")


def compose(*overrides: str) -> TrainConfig:
    """Return a checked config, as the front door composes it."""
    register()
    return typed(compose_job("train", overrides), TrainConfig)


def start(runs: Path, name: str, ranks: int, *overrides: str) -> subprocess.Popen[str]:
    """Start `scalescope train` as a user does."""
    return _start(["scalescope", "train", f"launch.ranks={ranks}"], runs, name, *overrides)


def train(runs: Path, name: str, ranks: int, *overrides: str) -> tuple[RunFolder, subprocess.CompletedProcess[str]]:
    """Run `scalescope train` to its end, analysis and report included, and return its folder and what it said."""
    return _end(start(runs, name, ranks, *overrides), runs / name)


def train_in_world(
    runs: Path, name: str, ranks: int, *overrides: str
) -> tuple[RunFolder, subprocess.CompletedProcess[str]]:
    """Run it inside torchrun's own world, which ends with the job: no analysis, no report."""
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m", "scalescope", "train"]
    return _end(_start(torchrun, runs, name, *overrides), runs / name)


def _start(module: list[str], runs: Path, name: str, *overrides: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *module, f"runs={runs}", f"name={name}", *FAST, *overrides],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
    )


def _end(job: subprocess.Popen[str], folder: Path) -> tuple[RunFolder, subprocess.CompletedProcess[str]]:
    out, err = job.communicate(timeout=200)
    return RunFolder(folder), subprocess.CompletedProcess(job.args, job.returncode, out, err)


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


def ranks_of(launcher: "subprocess.Popen[str]") -> list[int]:
    """Return the process ids of a job's ranks, lowest first."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    return sorted(int(child) for child in children)
