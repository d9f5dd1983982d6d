"""What the tests of faults have in common: an endless job, a signal into it, and what every end of one asserts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from tests.collectives_runs import process_of
from tests.faults import Fault
from tests.train_runs import FAST, SMALL_GPT, wait_for_rows

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
ENDLESS = (*SMALL_GPT, "data=python_stdlib", "profiler=none", "warmup_steps=2", "steps=100000", "launch.step_limit_s=3")
SHORT = (*(word for word in ENDLESS if not word.startswith("steps=")), "steps=12")
Running = tuple[subprocess.Popen[str], RunFolder]

needs_mpirun = pytest.mark.skipif(
    not (BIN / "mpirun").exists(), reason="no MPICH beside this Python: pip install mpich"
)


def end_of(fault: Fault, job: subprocess.Popen[str], folder: RunFolder, since: float) -> str:
    """Await a job's end and assert what every fault's has in common; returns what run.json and the command said."""
    try:
        out, err = job.communicate(timeout=fault.within_s + 60)
    finally:
        if job.poll() is None:
            job.kill()
    elapsed_s = time.monotonic() - since
    message = (folder.read_info().message or "") if (folder.path / "run.json").is_file() else ""
    said = f"{message}\n{err}{out}"
    assert job.returncode == fault.exit_code, said
    assert elapsed_s < fault.within_s, f"{elapsed_s:.0f} s\n{said}"
    assert fault.says in said
    return said


def steps_of(folder: RunFolder) -> list[int]:
    return [row.step for row in folder.read_steps()]


def hurt(job: subprocess.Popen[str], rank: int, number: signal.Signals) -> float:
    """Send a rank of a running job a signal, and return when."""
    os.kill(process_of(job, rank), number)
    return time.monotonic()


def while_loading(job: subprocess.Popen[str], rank: int, number: signal.Signals) -> float:
    """Send a rank a signal as soon as there is a process of it, seconds before it can join the others."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            return hurt(job, rank, number)
        except AssertionError:
            time.sleep(0.02)
    raise TimeoutError("the ranks never began")


def mpirun() -> str:
    return str(BIN / "mpirun")


LIMITED = [*ENDLESS, "launch.init_limit_s=20"]


def begin(
    runs: Path, beside: str, *words: str, ranks: int = 2, before: tuple[str, ...] = ()
) -> "subprocess.Popen[str]":
    """Start a training job; each of its processes loads `beside` as it begins, `before` stands before the command."""
    (runs / "sitecustomize.py").write_text(beside)
    command = [
        *before,
        sys.executable,
        "-m",
        "scalescope",
        "train",
        f"launch.ranks={ranks}",
        f"runs={runs}",
        "name=one",
    ]
    return subprocess.Popen(
        [*command, *FAST, *(words or LIMITED)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(runs), str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )  # fmt: skip


# rank 1 stops itself as its Python ends, when all is written; `{variable}` says which rank it is
STOPPED_AT_END = """
import atexit, os, pathlib, signal, sys
def stop():
    pathlib.Path(__file__).with_name("stopped").write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)
if os.environ.get("{variable}") == "1" and "train" in sys.orig_argv:
    atexit.register(stop)
"""

# a thread of rank 1's waits for the file `go` beside this one, and does what follows
ON_GO = """
import os, pathlib, signal, threading, time
GO = pathlib.Path(__file__).with_name("go")
def wait():
    while not GO.exists():
        time.sleep(0.02)
"""
IN_RANK_1 = "if os.environ.get('RANK') == '1':\n    threading.Thread(target=act, daemon=True).start()\n"


def running(runs: Path, act: str, *words: str) -> tuple["subprocess.Popen[str]", RunFolder]:
    """Return a job whose rank 1 does something as soon as there is a file `go`; it has written rows."""
    job = begin(runs, f"{ON_GO}{act}{IN_RANK_1}", *words)
    wait_for_rows(runs / "one" / "steps.jsonl", 8)
    return job, RunFolder(runs / "one")


def go(runs: Path) -> float:
    (runs / "go").touch()
    return time.monotonic()


def assert_failed_with_whole_rows(folder: RunFolder, status: str = "failed") -> None:
    assert folder.read_info().status == status
    assert len(steps_of(folder)) >= 8 and steps_of(folder) == list(range(len(steps_of(folder))))
