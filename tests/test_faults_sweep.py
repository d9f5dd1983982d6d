"""Faults in the middle of a sweep: every finished point's row stays."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from tests.collectives_runs import await_rows, process_of, rows_of
from tests.collectives_runs import start as start_sweep
from tests.faults import FAULTS
from tests.faults_running import Running, end_of, hurt


@pytest.fixture
def sweeping(tmp_path: Path) -> tuple[subprocess.Popen[str], RunFolder]:
    """A sweep of two ranks that has written a row and is inside all-reduces of 64 MiB for long."""
    job = start_sweep(tmp_path, "one", 2, "sizes=[8B,64MiB]", "budget_s=20", "min_iterations=1000")
    await_rows(job, tmp_path, "one", least=1)
    time.sleep(2)  # the second point is at work, and has been for long
    return job, RunFolder(tmp_path / "one")


def assert_first_row_alone_is_kept(folder: RunFolder) -> None:
    assert [(row.bytes, row.status) for row in rows_of(folder.path.parent, folder.path.name)] == [(8, "measured")]


@pytest.mark.long
def test_a_rank_killed_in_a_collective(sweeping: Running) -> None:
    job, folder = sweeping
    end_of(FAULTS["killed_in_collective"], job, folder, hurt(job, 1, signal.SIGKILL))
    assert_first_row_alone_is_kept(folder)
    assert folder.read_info().status == "failed"


@pytest.mark.long
def test_a_launchers_sigterm_that_follows_a_death_does_not_hide_it(sweeping: Running) -> None:
    """A launcher ends the ranks that are left as soon as it sees one die: sooner than these have said why."""
    job, folder = sweeping
    survivor = process_of(job, 0)
    since = hurt(job, 1, signal.SIGKILL)
    os.kill(survivor, signal.SIGTERM)
    end_of(FAULTS["death_and_sigterm"], job, folder, since)
    assert_first_row_alone_is_kept(folder)
    assert folder.read_info().status == "failed"


@pytest.mark.long
def test_a_sweep_that_is_asked_to_end_in_a_collective(sweeping: Running) -> None:
    job, folder = sweeping
    ranks = [process_of(job, rank) for rank in (0, 1)]
    since = time.monotonic()
    job.send_signal(signal.SIGTERM)
    end_of(FAULTS["terminated_in_collective"], job, folder, since)
    assert_first_row_alone_is_kept(folder)
    assert folder.read_info().status == "interrupted"
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)


@pytest.mark.long
def test_a_rank_stopped_outside_the_group_at_work_is_named(tmp_path: Path) -> None:
    """Nobody in that group waits for it, and the group goes on for longer than this may take."""
    axes = ("sizes=[8B,64MiB]", "group_sizes=[2,3]", "budget_s=60", "min_iterations=3000", "hang_limit_s=2")
    job, folder = start_sweep(tmp_path, "one", 3, *axes), RunFolder(tmp_path / "one")
    await_rows(job, tmp_path, "one", least=1)
    bystander = process_of(job, 2)
    said = end_of(FAULTS["stopped_outside_group"], job, folder, hurt(job, 2, signal.SIGSTOP))
    assert f"rank 2 (process {bystander} on {socket.gethostname()}) is stopped" in said
    assert "waiting for the turn of ranks [0, 1]" in said and "every rank arrived" not in said
    assert_first_row_alone_is_kept(folder)
    assert not Path(f"/proc/{bystander}").exists(), "a stopped rank does not stay behind"
