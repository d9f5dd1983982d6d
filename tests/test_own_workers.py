"""What a rank's child processes use of the cores: real ones, workers and others."""

import multiprocessing
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from scalescope.train.script.own_workers import OwnWorkers


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="nothing tells what processes use")
def test_what_child_processes_use_of_the_cores_is_known_whether_they_have_ended_or_not() -> None:
    before = OwnWorkers()
    idle = before.worked(3)  # of children that whoever runs the tests has
    assert idle is None or idle.cores < 0.1
    before.go_on()
    begun = time.monotonic()
    forks = multiprocessing.get_context("fork")
    ended = forks.Process(target=_spin)
    ended.start()
    ended.join()
    spun = forks.Event()
    child = forks.Process(target=_spin, args=(spun,), daemon=True)
    child.start()
    assert spun.wait(30)
    found, took_s = before.worked(3), time.monotonic() - begun
    child.kill()
    child.join()
    others = idle.processes if idle is not None else 0
    assert found is not None and (found.rank, found.processes) == (3, others + 1)
    assert 0.9 * 0.6 <= found.cores * took_s <= 1.0


def _spin(spun: Any = None) -> None:
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    if spun is not None:
        spun.set()
        time.sleep(60)


LOOKS = """
import multiprocessing, subprocess, sys, time
from scalescope.train.script.own_workers import OwnWorkers
forks = multiprocessing.get_context("fork")
def spin():
    until = time.process_time() + 0.1
    while time.process_time() < until: pass
def ended():
    child = forks.Process(target=spin)
    child.start()
    child.join()
living = []
def lives():
    living.append(forks.Process(target=time.sleep, args=(60,), daemon=True))
    living[0].start()
def another():
    living.append(subprocess.Popen([sys.executable, "-S", "-c", "print(flush=True); input()"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    living[0].stdout.readline()
used = OwnWorkers()
{}
used.pause()
used.go_on()
print(used.had_none(), used.worked(0) is None)
for one in living: one.kill()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="nothing tells what processes use")
@pytest.mark.parametrize(
    ("does", "told"),
    [("pass", "True True"), ("another()", "True True"), ("ended()", "False True"), ("lives()", "False False")],
)
def test_that_there_were_no_workers_is_known_where_none_was_seen_and_none_came_and_went(does: str, told: str) -> None:
    command = [sys.executable, "-c", LOOKS.format(does)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == told.split()


SPINS = "import time\nwhile time.process_time() < {}: pass\n"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="nothing tells what processes use")
@pytest.mark.parametrize("has_worker", [False, True])
def test_a_child_that_runs_a_command_of_its_own_is_no_worker(has_worker: bool) -> None:
    """A script's `Popen` of a busy loop was *the loaders' workers use 0.41*, and *make their batches cheaper*."""
    used = OwnWorkers()
    before = used.worked(3)
    worker = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,), daemon=True)
    if has_worker:
        worker.start()
    used.go_on()
    begun = time.monotonic()
    with _spinning(0.3) as child:
        found, (other,), took_s = used.worked(3), used.others(3), time.monotonic() - begun
        name = psutil.Process(child.pid).name()
        child.kill()
    others = before.processes if before is not None else 0
    assert (found.processes if found is not None else 0) == others + has_worker
    assert (other.rank, other.name) == (3, name) and 0.9 * 0.3 <= other.cores * took_s <= 0.5
    if has_worker:
        worker.kill()
        worker.join()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="nothing tells what processes use")
def test_a_child_that_ends_with_the_loop_is_told_from_workers_that_end_with_it_by_what_both_used_before() -> None:
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
    used = OwnWorkers()
    with _spinning(0.3) as child:
        worker.start()
        used.go_on()
        begun = time.monotonic()
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b"go\n")
        child.stdin.flush()
        assert child.stdout.readline()
        worker.kill()
        worker.join()
        child.kill()
    found, (other,), took_s = used.worked(3), used.others(3), time.monotonic() - begun
    assert found is not None and other.cores > 4 * found.cores
    assert 0.9 * 0.3 <= (found.cores + other.cores) * took_s <= 0.5


def _spinning(cpu_s: float) -> "subprocess.Popen[bytes]":
    """Return a program that has used so much of a core, uses as much again when it is told to, and then sleeps."""
    again = f"import sys; sys.stdin.readline()\n{SPINS.format(2 * cpu_s)}print(flush=True)\ntime.sleep(60)"
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", f"{SPINS.format(cpu_s)}print(flush=True)\n{again}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None and child.stdout.readline()
    return child
