"""Composed sweep configs and real sweeps for the tests of collectives/."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from scalescope.collectives.config import SweepConfig, register
from scalescope.collectives.plan import PlannedPoint, plan
from scalescope.launch.compose import compose_job, typed
from scalescope.records.files import read_rows
from scalescope.records.folder import RunFolder
from scalescope.records.rows import SweepRow
from tests.worlds import run_world

FAST = ("launch.device=cpu", "launch.threads_per_rank=1", "logger=none")


def compose(*overrides: str) -> SweepConfig:
    """Return a sweep's config, as the front door composes it."""
    register()
    return typed(compose_job("sweep", overrides), SweepConfig)


def planned(ranks: int, *overrides: str) -> list[PlannedPoint]:
    """Return the points that a sweep on this host's CPUs plans."""
    return plan(compose(*overrides), ["here"] * ranks, "cpu")


ROOT = Path(__file__).resolve().parent.parent


def start(runs: Path, name: str, ranks: int, *overrides: str, beside: Path | None = None) -> subprocess.Popen[str]:
    """Start `scalescope sweep` as a user does, in a process group of its own, as a terminal would.

    Python finds the modules in the folder `beside` too, a sitecustomize.py for one.
    """
    command = [sys.executable, "-m", "scalescope", "sweep", f"runs={runs}", f"name={name}", f"launch.ranks={ranks}"]
    return subprocess.Popen(
        [*command, *FAST, *overrides],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, filter(None, (ROOT, beside))))},
        start_new_session=True,
    )


def sweep_in_world(runs: Path, name: str, ranks: int, *overrides: str) -> tuple[int, str]:
    """Run it to its end in a world that somebody else made; return its exit code and what it said."""
    done = run_world(ranks, ["scalescope", "sweep", f"runs={runs}", f"name={name}", *FAST, *overrides])
    return done.returncode, done.stdout + done.stderr


def finish(job: subprocess.Popen[str], within_s: float) -> tuple[int, str]:
    """Return exit code and what a job said; whatever happens, nothing of it is left running."""
    try:
        out, err = job.communicate(timeout=within_s)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    return job.returncode, out + err


def rows_of(runs: Path, name: str) -> list[SweepRow]:
    return list(read_rows(runs / name / "sweep.jsonl", SweepRow))


def await_rows(job: subprocess.Popen[str], runs: Path, name: str, least: int, within_s: float = 120.0) -> None:
    """Wait until a running sweep has written so many rows."""
    until = time.monotonic() + within_s
    while len(rows_of(runs, name)) < least:
        assert job.poll() is None, finish(job, 5)
        assert time.monotonic() < until, f"fewer than {least} rows after {within_s} s"
        time.sleep(0.05)


def process_of(job: subprocess.Popen[str], rank: int) -> int:
    """Return the process id of one rank of a running job."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            environ = (status.parent / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == job.pid and f"RANK={rank}".encode() in environ:
            return int(status.parent.name)
    raise AssertionError(f"no process of rank {rank}")


def points_of(rows: list[SweepRow]) -> list[PlannedPoint]:
    return [PlannedPoint.of(row) for row in rows]


def folder_of(runs: Path, name: str) -> RunFolder:
    return RunFolder(runs / name)
