"""A stopped rank that is no party to what the others do is found with them, and ended with the job."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scalescope.launch.watch.arrivals import where_they_are
from scalescope.launch.watch.presence import Heartbeat
from tests.processes import await_that

pytestmark = pytest.mark.job

ROOT = Path(__file__).resolve().parent.parent

# ranks 0 and 1 are a group at work, rank 2 waits for its turn
RANK = """
import sys, time
from pathlib import Path
import torch.distributed as dist
from scalescope.launch.watch.progress_watchdog import ProgressWatchdog
from scalescope.records.folder import RunFolder

rank, port, ends, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], RunFolder(Path(sys.argv[4]))
store = dist.TCPStore("127.0.0.1", port, 3, is_master=rank == 0)
watchdog = ProgressWatchdog(store, rank, 3)
watchdog.begin(60.0)
watchdog.attend(folder, 600.0, lambda reason, writes: print(reason.message, flush=True) if writes else None)
if rank == 2:
    watchdog.rescue = lambda reason: (print("saves what it has", flush=True), time.sleep(600))
    watchdog.arrive(4, "forming the group of ranks [0, 1]", 600.0)
    watchdog.wait("waiting for the turn of ranks [0, 1]")
time.sleep(2)  # all have joined and seen one another
print("ready", flush=True)
sys.stdin.readline()
if rank < 2 and ends == "hangs":
    watchdog.arrive(5, "all_reduce of 8 B", 1.0, [0, 1])
if rank == 0 and ends == "fails":
    watchdog.announce("it failed")
    watchdog.part()
    sys.exit(3)
time.sleep(600)
"""


@pytest.fixture
def ranks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Three watched processes; what the first two do is the parameter."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(port), request.param, str(tmp_path)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for rank in range(3)
    ]  # fmt: skip
    try:
        for job in jobs:
            assert job.stdout is not None and job.stdout.readline() == "ready\n"
        yield jobs
    finally:
        for job in jobs:
            job.kill()
            job.communicate()


def go_on(ranks: list[subprocess.Popen[str]]) -> None:
    for job in ranks[:2]:
        assert job.stdin is not None
        job.stdin.write("go\n")
        job.stdin.flush()


def stop_the_bystander(ranks: list[subprocess.Popen[str]]) -> None:
    ranks[2].send_signal(signal.SIGSTOP)
    go_on(ranks)


def test_a_rank_that_waits_for_its_turn_is_expected_nowhere() -> None:
    def sign(place: int, name: str, waits: bool = False) -> Heartbeat:
        return Heartbeat("here", 1, "another host", 0, marker=place, name=name, waits=waits)

    turn = sign(4, "waiting for the turn of ranks [0, 1]", waits=True)
    at_work = {0: sign(5, "all_reduce"), 1: sign(5, "all_reduce")}
    lost = (
        "rank 3 (process 1 on here) does not respond: stopped, dead, cut off, or inside a library, "
        "last heard from at waiting for the turn of ranks [0, 1]"
    )
    assert where_they_are({**at_work, 2: turn, 3: turn}, [3]) == f"{lost}; ranks 0, 1 arrived"
    assert where_they_are({2: turn, 3: turn}, [3]) == lost


@pytest.mark.parametrize("ranks", ["hangs"], indirect=True)
def test_a_stopped_rank_outside_the_group_that_hangs_is_named(ranks: list[subprocess.Popen[str]]) -> None:
    stop_the_bystander(ranks)
    said, _ = ranks[0].communicate(timeout=40)
    assert said.startswith("all_reduce of 8 B did not return within 1 s; rank 2 (process ")
    assert "is stopped, last heard from at waiting for the turn of ranks [0, 1]; ranks 0, 1 arrived" in said
    assert "every rank arrived" not in said and "did not arrive" not in said
    await_that(lambda: ranks[2].poll() == -signal.SIGKILL, 10)


@pytest.mark.parametrize("ranks", ["fails"], indirect=True)
def test_a_job_that_ends_takes_along_a_stopped_rank_that_is_not_to_blame(ranks: list[subprocess.Popen[str]]) -> None:
    """Its launcher would wait for it for half a minute: a stopped process takes no SIGTERM."""
    stop_the_bystander(ranks)
    assert ranks[0].wait(timeout=30) == 3
    await_that(lambda: ranks[2].poll() == -signal.SIGKILL, 10)


@pytest.mark.parametrize("ranks", ["fails"], indirect=True)
def test_a_rank_that_is_stopped_on_its_way_out_is_ended_with_the_job(ranks: list[subprocess.Popen[str]]) -> None:
    """As one is whose stop takes effect late, on a busy machine: the rank that fails has looked once by then."""
    go_on(ranks)
    assert ranks[2].stdout is not None and ranks[2].stdout.readline() == "saves what it has\n"
    ranks[2].send_signal(signal.SIGSTOP)
    await_that(lambda: ranks[2].poll() == -signal.SIGKILL, 10)
    assert ranks[0].wait(timeout=30) == 3
