"""Signals as a rank hears them: while it loads, while a library keeps its main thread, and in processes it forks."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch.distributed as dist

from scalescope.launch.start import _ranks
from scalescope.launch.watch.errors import ended_by_error
from scalescope.records.errors import Preempted
from scalescope.records.stop import Ending, held_back, note_requests, told_again
from scalescope.train.measure.preemption import StopRequest

ROOT = Path(__file__).resolve().parent.parent

# then(): the rank says what it heard, and leaves
LISTENING = """
import os, signal, sys, time
from scalescope.launch.watch.termination import on_termination
def then(number):
    os.write(1, f"heard {number.name}\\n".encode())
    os._exit(3)
on_termination(then)
"""
READY = "os.write(1, b'ready\\n')\n"


def started(program: str, **options: object) -> "subprocess.Popen[str]":
    """Start a program that says when it is ready, and return once it has."""
    job = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload]
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    return job  # type: ignore[no-any-return]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_heard_while_the_main_thread_is_inside_a_library(number: signal.Signals) -> None:
    """A lock's acquisition in C, which no signal interrupts, stands for a collective that never ends."""
    inside = "import ctypes\nlock = (ctypes.c_char * 128)()\nc = ctypes.CDLL(None)\nc.pthread_mutex_lock(lock)\n"
    job = started(f"{LISTENING}{inside}{READY}c.pthread_mutex_lock(lock)")
    job.send_signal(number)
    out, _ = job.communicate(timeout=20)
    assert (job.returncode, out) == (3, f"heard {number.name}\n")


def test_a_signal_is_heard_although_asyncio_has_taken_pythons_wakeup_descriptor() -> None:
    taken = (
        "import asyncio\nasync def body():\n    asyncio.get_event_loop().add_signal_handler(signal.SIGUSR2, print)\n"
    )
    job = started(f"{LISTENING}{taken}    {READY}    await asyncio.sleep(60)\nasyncio.run(body())")
    job.send_signal(signal.SIGTERM)
    out, _ = job.communicate(timeout=20)
    assert (job.returncode, out) == (3, "heard SIGTERM\n")


def test_a_forked_process_dies_of_a_signal_and_its_rank_does_not_hear_it() -> None:
    fork = "r, w = os.pipe()\nchild = os.fork()\nif child == 0: os.write(w, b'x'), time.sleep(60)\n"
    ends = "os.read(r, 1)\nos.kill(child, signal.SIGTERM)\n_, status = os.wait()\nprint(os.WTERMSIG(status))\n"
    job = started(f"{LISTENING}{fork}{READY}{ends}time.sleep(0.5)")
    out, _ = job.communicate(timeout=20)
    assert (job.returncode, out) == (0, "15\n")


def test_what_is_ignored_stays_ignored() -> None:
    """As SIGINT is in a background job of a shell's script."""
    job = started(f"{LISTENING}{READY}time.sleep(0.5)", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    job.send_signal(signal.SIGINT)
    out, _ = job.communicate(timeout=20)
    assert (job.returncode, out) == (0, "")


def test_a_request_to_stop_waits_for_a_process_that_is_still_loading() -> None:
    loads = "import time\ntime.sleep(0.3)\nfrom scalescope.records.stop import *\nnote_requests()\nprint(noted())"
    with held_back():
        job = subprocess.Popen([sys.executable, "-c", loads], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    job.send_signal(signal.SIGUSR1)
    out, _ = job.communicate(timeout=20)
    assert (job.returncode, out) == (0, "SIGUSR1\n")


@pytest.fixture
def handlers() -> object:
    numbers = (signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    yield before
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_a_rank_that_obeys_a_request_to_stop_is_not_ended_by_a_second_one(handlers: object) -> None:
    with pytest.raises(Preempted), StopRequest() as stop:
        raise Preempted("saved")
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.name == "SIGTERM"


def test_a_request_to_stop_that_came_before_training_began_is_obeyed(
    handlers: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scalescope.records.stop._noted", [])
    note_requests()
    stop = StopRequest()
    os.kill(os.getpid(), signal.SIGUSR1)
    with stop:
        assert stop.name == "SIGUSR1"


@pytest.mark.parametrize(("numbers", "after_s", "again"), [
    ((signal.SIGINT, signal.SIGINT), 0.005, False),  # from the terminal, and from a wrapper that passes it on
    ((signal.SIGINT, signal.SIGINT), 0.4, True),  # by hand, as fast as people press twice
    ((signal.SIGINT, signal.SIGINT, signal.SIGINT), 0.1, True),
    ((signal.SIGTERM, signal.SIGTERM), 1.5, False),
])  # fmt: skip
def test_a_signal_that_comes_twice_at_once_is_no_second_ctrl_c(
    numbers: tuple[signal.Signals, ...], after_s: float, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    endings = [Ending(number, 1000.0 + at * after_s) for at, number in enumerate(numbers)]
    monkeypatch.setattr("scalescope.records.stop._endings", endings)
    assert told_again() is again


def test_ranks_are_looked_for_while_threads_of_their_launcher_come_and_go() -> None:
    until = time.monotonic() + 1.0

    def churn() -> None:
        while time.monotonic() < until:
            brief = threading.Thread(target=lambda: None)
            brief.start()
            brief.join()

    others = [threading.Thread(target=churn) for _ in range(4)]
    for other in others:
        other.start()
    while time.monotonic() < until:
        assert _ranks() == set()  # a thread that has gone raises nothing: whoever looks goes on telling ranks
    for other in others:
        other.join()


@pytest.mark.parametrize(
    ("error", "ended_by"),
    [
        (dist.DistBackendError("Watchdog caught collective operation timeout: ran for 600000 ms"), "hang"),
        (RuntimeError("[gloo] Timed out waiting 60000ms for recv operation to complete"), "hang"),
        (dist.DistBackendError("NCCL error: unhandled system error"), "failure"),
        (ValueError("the step timed out"), "failure"),
    ],
)
def test_what_a_library_raises_where_time_ran_out_is_told_from_other_failures(error: Exception, ended_by: str) -> None:
    assert ended_by_error(error) == ended_by
