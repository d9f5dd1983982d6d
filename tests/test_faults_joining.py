"""Faults while ranks load and find each other, before there is a job."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from scalescope.records.errors import ExitCode
from scalescope.records.folder import RunFolder
from tests.faults import FAULTS
from tests.faults_running import BIN, ENDLESS, end_of, while_loading
from tests.processes import await_that, command_of
from tests.train_runs import FAST, ranks_of, start, wait_for


@pytest.mark.long
def test_a_rank_killed_before_it_joins(tmp_path: Path) -> None:
    job, folder = start(tmp_path, "one", 2, *ENDLESS), RunFolder(tmp_path / "one")
    end_of(FAULTS["killed_before_init"], job, folder, while_loading(job, 1, signal.SIGKILL))
    assert folder.read_info().status == "failed"


@pytest.mark.long
def test_a_rank_stopped_before_it_joins(tmp_path: Path) -> None:
    job, folder = start(tmp_path, "one", 2, *ENDLESS, "launch.init_limit_s=8"), RunFolder(tmp_path / "one")
    end_of(FAULTS["stopped_before_init"], job, folder, while_loading(job, 1, signal.SIGSTOP))
    assert (folder.read_info().status, folder.read_info().world_size) == ("failed", 2)
    assert (folder.logs / "rank0.hang.txt").stat().st_size > 0


@pytest.mark.long
def test_a_rank_0_stopped_before_there_is_a_folder_is_named(tmp_path: Path) -> None:
    """Inside a world that somebody else made, rank 0 composes the config, and the others wait for it."""
    torchrun = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node=2", "-m", "scalescope", "train"]
    job = subprocess.Popen([*torchrun, f"runs={tmp_path}", *FAST, *ENDLESS, "launch.init_limit_s=8"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    since = while_loading(job, 0, signal.SIGSTOP)
    _, said = job.communicate(timeout=60)
    assert job.returncode == 1 and time.monotonic() - since < 40, said
    assert "joining the job did not return within 8 s; rank 0 never joined" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_launcher_that_is_ended_before_it_has_ranks_says_so_in_run_json(tmp_path: Path) -> None:
    job, folder = start(tmp_path, "one", 2, *ENDLESS), RunFolder(tmp_path / "one")
    wait_for(folder.path / "run.json")
    job.send_signal(signal.SIGTERM)
    _, said = job.communicate(timeout=60)
    assert (job.returncode, folder.read_info().status) == (ExitCode.RUN_FAILED, "interrupted"), said
    assert folder.read_info().message == "stopped by SIGTERM" and "Traceback" not in said


@pytest.mark.long
def test_ranks_whose_launcher_is_killed_while_they_load_end(tmp_path: Path) -> None:
    """Nothing answers at the address where they were to meet; they would try until launch.init_limit_s is over."""
    job, folder = start(tmp_path, "one", 2, *ENDLESS), RunFolder(tmp_path / "one")
    await_that(lambda: len(ranks := ranks_of(job)) == 2 and all(b"--frozen" in command_of(rank) for rank in ranks))
    ranks = ranks_of(job)
    job.kill()
    await_that(lambda: not any(Path(f"/proc/{rank}").exists() for rank in ranks))
    info = folder.read_info()
    assert info.status == "failed" and "the launcher died while rank" in (info.message or "")
