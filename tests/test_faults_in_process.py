"""Faults inside of a rank's process and in what surrounds it: what they end, how soon, and what is kept."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from tests import hosts
from tests.collectives_runs import process_of
from tests.faults import FAULTS
from tests.faults_running import (
    ENDLESS,
    LIMITED,
    assert_failed_with_whole_rows,
    end_of,
    go,
    hurt,
    running,
    steps_of,
)
from tests.processes import await_that
from tests.train_runs import FAST, SMALL_GPT, start, wait_for, wait_for_rows

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(("number", "fault"), [(signal.SIGSEGV, "segfault"), (signal.SIGABRT, "abort")])
def test_a_rank_that_crashes_is_named_with_its_signal(number: signal.Signals, fault: str, tmp_path: Path) -> None:
    job, folder = start(tmp_path, "one", 2, *ENDLESS), RunFolder(tmp_path / "one")
    wait_for_rows(folder.steps, 8)
    crashed = process_of(job, 1)
    said = end_of(FAULTS[fault], job, folder, hurt(job, 1, number))
    assert f"rank 1 (process {crashed}" in said
    assert_failed_with_whole_rows(folder)


def test_an_exception_raised_into_a_ranks_main_thread_from_another_ends_the_job(tmp_path: Path) -> None:
    """As a library's watchdog thread does it: PyThreadState_SetAsyncExc."""
    act = (
        "def act():\n    import ctypes\n    wait()\n"
        "    main = ctypes.c_ulong(threading.main_thread().ident)\n"
        "    ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(ZeroDivisionError))\n"
    )
    job, folder = running(tmp_path, act)
    end_of(FAULTS["async_exception"], job, folder, go(tmp_path))
    assert_failed_with_whole_rows(folder)


def test_a_thread_of_the_users_that_fails_costs_no_step(tmp_path: Path) -> None:
    act = "def act():\n    wait()\n    raise RuntimeError('of a thread beside')\n"
    words = (*SMALL_GPT, "data=python_stdlib", "profiler=none", "warmup_steps=2", "steps=150")
    job, folder = running(tmp_path, act, *words)
    end_of(FAULTS["thread_exception"], job, folder, go(tmp_path))
    assert (folder.read_info().status, steps_of(folder)) == ("done", list(range(150)))


def test_an_exception_in_a_signal_handler_ends_the_job(tmp_path: Path) -> None:
    handler = (
        "def act(): pass\n"
        "def fail(number, frame):\n    raise RuntimeError('in a handler')\n"
        "signal.signal(signal.SIGUSR2, fail)\n"
    )
    job, folder = running(tmp_path, handler)
    end_of(FAULTS["handler_exception"], job, folder, hurt(job, 1, signal.SIGUSR2))
    assert_failed_with_whole_rows(folder)


@pytest.mark.skipif(bool(hosts.missing()), reason=f"hosts of one's own need {', '.join(hosts.missing())}")
def test_a_host_that_vanishes_from_the_network_ends_the_job_on_both_sides(tmp_path: Path) -> None:
    """No process is told: packets stop coming, on an open connection."""
    words = ["-m", "scalescope", "train", f"runs={tmp_path}", "name=one", *FAST, *LIMITED]
    with hosts.Hosts(2) as both:
        master = {"MASTER_ADDR": both.addresses["nodea"], "MASTER_PORT": "29511", "WORLD_SIZE": "2", "LOCAL_RANK": "0",
                  "PYTHONPATH": str(ROOT)}  # fmt: skip
        jobs = [both.start(host, sys.executable, *words, **master, RANK=str(rank))
                for rank, host in enumerate(("nodea", "nodeb"))]  # fmt: skip
        folder = RunFolder(tmp_path / "one")
        try:
            wait_for_rows(folder.steps, 8)
            since = time.monotonic()
            both.cut("nodea", "nodeb")
            end_of(FAULTS["host_vanishes"], jobs[0], folder, since)
            jobs[1].communicate(timeout=FAULTS["host_vanishes"].within_s)
            assert jobs[1].returncode not in (0, None)
        finally:
            for job in jobs:
                job.kill()
    assert_failed_with_whole_rows(folder)


def test_a_study_that_is_told_to_end_between_two_jobs_ends(tmp_path: Path) -> None:
    words = ["study", "model=gpt_tiny", "gpu_counts=[1,2]", "with_sweep=false", f"runs={tmp_path}", "name=all",
             "steps=6", "warmup_steps=2", "profiler=none", "data=synthetic", "precision=fp32",
             "launch.device=cpu", "logger=none"]  # fmt: skip
    job = subprocess.Popen([sys.executable, "-m", "scalescope", *words], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)  # fmt: skip
    first = tmp_path / "all" / "gpt_tiny-ddp-n1"
    wait_for(first / "run.json")
    await_that(lambda: RunFolder(first).read_info().status == "done")
    since = time.monotonic()
    job.send_signal(signal.SIGTERM)
    end_of(FAULTS["study_between_jobs"], job, RunFolder(tmp_path / "all"), since)
    assert RunFolder(tmp_path / "all").read_info().status == "interrupted"
    assert RunFolder(first).read_info().status == "done"
