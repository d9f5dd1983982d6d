"""Ranks that are stopped at a job's end: one alone is ended, a job that is held as a whole is left alone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from scalescope.launch.watch.end_watchdog import Ending, watch_end
from scalescope.launch.watch.presence import heartbeat_of
from scalescope.records.folder import RunFolder
from tests.processes import await_that

WATCH = "import sys; from scalescope.launch.watch.end_watchdog import main; main(sys.argv[1])"
Processes = list[subprocess.Popen[bytes]]


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Stand for a launcher and two ranks."""
    started = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    yield started
    for process in started:
        process.kill()
        process.wait()


def watch(folder: RunFolder, processes: Processes, *, seen: bool = True) -> "subprocess.Popen[bytes]":
    launcher, *ranks = (heartbeat_of(process.pid) for process in processes)
    ending = Ending(str(folder.path), dict(enumerate(ranks)), launcher if seen else None, limit_s=1.0)
    root = Path(__file__).resolve().parent.parent
    return subprocess.Popen([sys.executable, "-P", "-c", WATCH, msgspec.json.encode(ending).decode()],
                            env={**os.environ, "PYTHONPATH": str(root)})  # fmt: skip


@pytest.mark.job
def test_a_stopped_rank_is_ended_with_its_reason_and_the_process_goes_with_the_last_rank(
    processes: Processes, tmp_path: Path
) -> None:
    folder = RunFolder.create(tmp_path / "run", "train", "{}\n")
    processes[2].send_signal(signal.SIGSTOP)
    watching = watch(folder, processes)
    assert processes[2].wait(timeout=60) == -signal.SIGKILL
    assert processes[1].poll() is None and watching.poll() is None
    info = folder.read_info()
    assert (info.status, info.ended_by) == ("failed", "lost_rank"), "its last word was not written yet"
    assert info.message is not None and info.message.startswith(f"rank 1 (process {processes[2].pid} on ")
    assert "was stopped at the job's end for 1 s" in info.message
    processes[1].terminate()
    processes[1].wait()
    assert watching.wait(timeout=60) == 0


@pytest.mark.job
def test_a_job_that_is_held_as_a_whole_is_left_alone(processes: Processes, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "train", "{}\n")
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    watching = watch(folder, processes)
    begun = Path(f"/proc/{watching.pid}/status")
    await_that(lambda: int(_ignored(begun), 16) >> (signal.SIGUSR1 - 1) & 1 == 1)  # it looks from here on
    assert not _ends_within(watching, 4.0)
    assert [process.poll() for process in processes] == [None] * 3
    processes[0].send_signal(signal.SIGCONT)  # its launcher goes on, and the ranks do not
    assert processes[1].wait(timeout=60) == processes[2].wait(timeout=60) == -signal.SIGKILL
    assert watching.wait(timeout=60) == 0


@pytest.mark.job
def test_a_launcher_that_is_not_to_be_seen_holds_nothing(processes: Processes, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "train", "{}\n")
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    watching = watch(folder, processes, seen=False)
    assert processes[1].wait(timeout=60) == processes[2].wait(timeout=60) == -signal.SIGKILL
    assert watching.wait(timeout=60) == 0


def test_a_parent_outside_of_the_container_does_not_end_a_job_that_is_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    handed: list[str] = []
    own = heartbeat_of(os.getpid())
    monkeypatch.setattr(os, "getppid", lambda: 0)  # what `docker exec` leaves
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: handed.append(command[-1]))
    watch_end(tmp_path, 0, {0: own, 1: own}, limit_s=1.0)
    (wanted,) = handed
    assert msgspec.json.decode(wanted, type=Ending).launcher is None


def _ignored(status: Path) -> str:
    (mask,) = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigIgn:")]
    return mask


def _ends_within(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
