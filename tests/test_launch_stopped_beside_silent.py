"""A rank is stopped while others sit inside a library with Python's lock held: it is named, once, and the job ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from scalescope.launch.watch.arrivals import where_they_are
from scalescope.launch.watch.presence import heartbeat_of
from scalescope.records.folder import RunFolder
from tests.faults import FAULTS
from tests.processes import await_that, descendants

ROOT = Path(__file__).resolve().parent.parent

# ranks 0, 1 and 2 of a torchrun of its own engine; 2 is to be stopped, and `holders` hold Python's lock from then on
RANK = """
import ctypes, os, sys, threading
from pathlib import Path
import torch.distributed as dist
import scalescope.launch.watch.progress_watchdog as watch
from scalescope.launch.watch.process_watchdog import note_end
from scalescope.records.folder import RunFolder

watch._LOST_LEAST_S, watch._SPEAK_S = 2.0, 1.0
rank, folder, holders = int(os.environ["RANK"]), RunFolder(Path(sys.argv[1])), sys.argv[2]
store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), 3, is_master=False)
watchdog = watch.ProgressWatchdog(store, rank, 3)
watchdog.begin(60.0)

def leave(reason, writes):
    if writes and note_end(folder.path, reason.message, reason.ended_by):
        print(f"scalescope: {reason.message}", file=sys.stderr)

watchdog.attend(folder, 2.0, leave)
watchdog.start_process_watchdog(folder)
watchdog.arrive(7 + rank, f"step {7 + rank}", 600.0)
threading.Event().wait(2)  # all have seen one another
(folder.path / f"pid{rank}").write_text(str(os.getpid()))
while not (folder.path / "go").exists():
    threading.Event().wait(0.1)
if str(rank) in holders:
    ctypes.PyDLL(None).sleep(600)  # as the launch of a kernel behind a full queue does
threading.Event().wait()
"""

# one rank without torch, beside another process; it beats until it is told to hold Python's lock
BESIDE = """
import ctypes, sys, time
from pathlib import Path
from scalescope.launch.watch.presence import heartbeat_of
from scalescope.launch.watch.process_watchdog import ProcessWatchdog

watchdog = ProcessWatchdog(0, Path(sys.argv[1]))
for _ in range(4):
    watchdog.beat("step 5", 6.0, 2.0, {1: heartbeat_of(int(sys.argv[2]))})
    time.sleep(0.5)
print("holds", flush=True)
ctypes.PyDLL(None).sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", "train", "{}\n")


@pytest.fixture
def neighbour() -> Iterator["subprocess.Popen[bytes]"]:
    """Stand for another rank of the host."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def ended_by_a_stopped_rank(folder: RunFolder, holders: str) -> tuple[str, list[int]]:
    """Stop rank 2 of a job in which these ranks hold Python's lock; returns what was said, and the ranks' processes."""
    fault = FAULTS["stopped_beside_lock_held"]
    script = folder.path / "rank.py"
    script.write_text(RANK)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = ("--nproc-per-node=3", "--master-addr=127.0.0.1", f"--master-port={probe.getsockname()[1]}")
    job = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *place, str(script), str(folder.path), holders],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    notes = [folder.path / f"pid{rank}" for rank in range(3)]
    try:
        await_that(lambda: all(note.exists() and note.read_text() for note in notes))
        pids = [int(note.read_text()) for note in notes]
        os.kill(pids[2], signal.SIGSTOP)
        (folder.path / "go").touch()
        said, _ = job.communicate(timeout=fault.within_s)  # torchrun alone would wait 30 s for a stopped rank
    finally:
        for pid in (*descendants(job.pid), job.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        job.communicate()
    assert job.returncode == fault.exit_code
    return said, pids


@pytest.mark.job
def test_a_stopped_rank_is_named_and_ended_where_no_other_rank_runs_python(folder: RunFolder) -> None:
    said, pids = ended_by_a_stopped_rank(folder, "01")
    info = folder.read_info()
    assert (info.status, info.ended_by) == ("failed", "lost_rank") and info.message is not None
    assert info.message.startswith(f"rank 2 (process {pids[2]} on {socket.gethostname()}) is stopped; rank ")
    assert FAULTS["stopped_beside_lock_held"].says in info.message
    assert " waits for it inside a library and has run no Python for " in info.message
    words = [line for line in said.splitlines() if line.startswith("scalescope: ")]
    assert words == [f"scalescope: {info.message}"], "one sentence, of whichever rank was the first to find it"
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids), "a rank stayed behind"
    assert all((folder.logs / f"rank{rank}.hang.txt").stat().st_size > 0 for rank in (0, 1))


@pytest.mark.job
def test_a_stopped_rank_is_the_cause_also_where_the_rank_that_looks_after_it_runs_no_python(folder: RunFolder) -> None:
    said, pids = ended_by_a_stopped_rank(folder, "0")
    message = folder.read_info().message or ""
    assert f"rank 2 (process {pids[2]} on {socket.gethostname()}) is stopped" in message
    assert message.index("rank 2") < message.index("rank 0") and "does not respond" not in message
    assert [line for line in said.splitlines() if line.startswith("scalescope: ")] == [f"scalescope: {message}"]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids), "a rank stayed behind"


def beside(folder: RunFolder, neighbour: "subprocess.Popen[bytes]") -> "subprocess.Popen[str]":
    rank = subprocess.Popen([sys.executable, "-c", BESIDE, str(folder.path), str(neighbour.pid)],
                            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert rank.stdout is not None and rank.stdout.readline() == "holds\n"
    return rank


@pytest.mark.job
def test_a_rank_that_fell_silent_before_another_was_stopped_is_not_said_to_wait_for_it(
    folder: RunFolder, neighbour: "subprocess.Popen[bytes]"
) -> None:
    rank = beside(folder, neighbour)
    time.sleep(4.5)
    neighbour.send_signal(signal.SIGSTOP)
    rank.communicate(timeout=20)
    info = folder.read_info()
    assert info.ended_by == "hang" and info.message is not None
    first, second = info.message.split("; ")
    assert first.startswith(f"rank 0 (process {rank.pid} on ") and "has run no Python for 6 s" in first
    assert second.startswith(f"rank 1 (process {neighbour.pid} on ") and second.endswith("is stopped")


@pytest.mark.job
def test_a_rank_without_python_does_not_outlive_one_that_died(
    folder: RunFolder, neighbour: "subprocess.Popen[bytes]"
) -> None:
    """Its launcher has asked it to end, which no Python hears, and would wait for half a minute."""
    rank = beside(folder, neighbour)
    neighbour.kill()
    began = time.monotonic()
    rank.communicate(timeout=20)
    assert time.monotonic() - began < 6 + 2  # its limit without that, and its stacks
    info = folder.read_info()
    assert info.ended_by == "lost_rank" and info.message is not None
    assert info.message.startswith(f"rank 1 (process {neighbour.pid} on {socket.gethostname()}) has died; rank 0 ")
    assert "waits for it inside a library" in info.message


def test_of_silent_ranks_the_stopped_one_comes_first_and_one_that_runs_is_not_called_dead(
    neighbour: "subprocess.Popen[bytes]",
) -> None:
    stopped, runs = heartbeat_of(neighbour.pid), heartbeat_of(os.getpid())
    neighbour.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{neighbour.pid}/stat")
    await_that(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
    for beat in (stopped, runs):
        beat.name = "step 9"
    assert where_they_are({0: runs, 1: stopped}, [0, 1]) == (
        f"rank 1 ({stopped}) is stopped, last heard from at step 9; "
        f"rank 0 ({runs}) runs, but gives no sign of life: it waits inside a library, or for a core, "
        "last heard from at step 9"
    )
    assert where_they_are({0: runs, 1: stopped, 2: runs}, [0, 1, 2]) == (
        f"rank 1 ({stopped}) is stopped, last heard from at step 9; "
        "ranks 0, 2 run, but give no sign of life: they wait inside a library, or for a core, last heard from at step 9"
    )
