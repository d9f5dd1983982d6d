"""A rank in which no thread runs Python any more is ended from beside it, with its stacks and its reason kept."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from tests.processes import await_that, descendants

ROOT = Path(__file__).resolve().parent.parent
WATCHED = """
import ctypes, os, sys, time
from pathlib import Path
import torch.distributed as dist
import scalescope.launch.watch.progress_watchdog
from scalescope.launch.watch.progress_watchdog import ProgressWatchdog
from scalescope.records.folder import RunFolder

scalescope.launch.watch.progress_watchdog._LOST_LEAST_S, scalescope.launch.watch.progress_watchdog._SPEAK_S = 2.0, 1.0
folder = RunFolder(Path(sys.argv[1]))
store = dist.TCPStore("127.0.0.1", 0, 1, True)
watchdog = ProgressWatchdog(store, 0, 1)
watchdog.begin(1.0)
watchdog.attend(folder, 1.0, lambda verdict, writes: None)
watchdog.start_process_watchdog(folder)
watchdog.arrive(57, "step 57", 600.0)
time.sleep(1.5)  # the watchdog gives its first signs
print("ready", flush=True)
if sys.argv[2] == "hangs":
    ctypes.PyDLL(None).sleep(600)  # a library's call, with Python's lock held
time.sleep(float(sys.argv[3]))
watchdog.end()
print(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())
"""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", "train", "{}\n")


def rank(folder: RunFolder, *argv: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    job = subprocess.Popen(
        [sys.executable, "-P", "-c", WATCHED, str(folder.path), *argv], env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
    )  # fmt: skip
    assert job.stdout is not None and job.stdout.readline() == "ready\n", job.stderr
    return job


@pytest.mark.job
def test_a_rank_that_hangs_with_pythons_lock_is_ended_and_its_stacks_are_kept(folder: RunFolder) -> None:
    began = time.monotonic()
    job = rank(folder, "hangs", "0")
    _, said = job.communicate(timeout=60)
    assert job.returncode == -signal.SIGKILL and time.monotonic() - began < 30
    info = folder.read_info()
    assert info.status == "failed" and info.message is not None
    assert info.ended_by == "hang"
    assert "has run no Python for 3 s" in info.message and "last heard from at step 57" in info.message
    assert info.message in said
    stacks = (folder.logs / "rank0.hang.txt").read_text()
    assert 'File "<string>", line 20 in <module>' in stacks and "in _guard" in stacks


@pytest.mark.job
def test_a_rank_that_runs_is_left_alone_and_leaves_no_process_watchdog_behind(folder: RunFolder) -> None:
    job = rank(folder, "runs", "5")
    out, said = job.communicate(timeout=60)
    assert (job.returncode, out, said) == (0, "[]\n", "")
    assert not folder.logs.exists()


@pytest.mark.job
def test_nothing_is_imported_from_the_folder_that_a_rank_stands_in(folder: RunFolder, tmp_path: Path) -> None:
    for name in ("launch", "records", "socket", "select"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('the stranger\\'s {name}.py was imported')\n")
    out, said = rank(folder, "runs", "1", cwd=tmp_path).communicate(timeout=60)
    assert (out, said) == ("[]\n", "")


@pytest.mark.job
def test_a_rank_that_is_stopped_is_not_ended_and_one_that_dies_takes_its_watchdog_along(folder: RunFolder) -> None:
    job = rank(folder, "runs", "600")
    (watchdog,) = descendants(job.pid)
    job.send_signal(signal.SIGSTOP)
    time.sleep(6)
    assert Path(f"/proc/{job.pid}").exists() and folder.read_info().status == "running"
    job.send_signal(signal.SIGCONT)
    time.sleep(1)
    assert job.poll() is None
    job.kill()
    job.communicate()
    stat = Path(f"/proc/{watchdog}/stat")
    await_that(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z", 10)
