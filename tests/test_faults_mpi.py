"""Faults of jobs that mpirun starts."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from scalescope.records.errors import ExitCode
from scalescope.records.folder import RunFolder
from tests.faults import FAULTS
from tests.faults_running import BIN, ENDLESS, SHORT, STOPPED_AT_END, end_of, mpirun, needs_mpirun, steps_of
from tests.processes import await_that, descendants, environment_of
from tests.train_runs import FAST, wait_for_rows


@pytest.mark.long
@needs_mpirun
def test_a_stopped_rank_0_that_serves_the_store(tmp_path: Path) -> None:
    argv = [mpirun(), "-n", "2", str(BIN / "scalescope"), "train", f"runs={tmp_path}", "name=one", *FAST, *ENDLESS]
    job = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    folder = RunFolder(tmp_path / "one")
    wait_for_rows(folder.steps, 8)
    (rank0,) = [pid for pid in descendants(job.pid) if b"PMI_RANK=0" in environment_of(pid)]
    os.kill(rank0, signal.SIGSTOP)
    end_of(FAULTS["rank0_stopped"], job, folder, time.monotonic())
    assert folder.read_info().status == "failed" and len(steps_of(folder)) >= 8
    assert not Path(f"/proc/{rank0}").exists()


@pytest.mark.long
@needs_mpirun
def test_a_rank_stopped_at_its_end_is_ended_and_nothing_is_left(tmp_path: Path) -> None:
    """Rank 0 waits for it inside MPI's own end, and mpirun for both; MPICH leaves its segment behind a killed rank."""
    before = set(Path("/dev/shm").glob("mpich_shm_*"))
    (tmp_path / "sitecustomize.py").write_text(STOPPED_AT_END.format(variable="PMI_RANK"))
    argv = [mpirun(), "-n", "2", str(BIN / "scalescope"), "train", f"runs={tmp_path}", "name=one", *FAST, *SHORT]
    job = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                           env={**os.environ, "PYTHONPATH": str(tmp_path)})  # fmt: skip
    await_that((tmp_path / "stopped").exists)
    folder, (rank1,) = RunFolder(tmp_path / "one"), [int((tmp_path / "stopped").read_text())]
    end_of(FAULTS["stopped_at_end_mpi"], job, folder, time.monotonic())
    assert folder.read_info().status == "done" and steps_of(folder) == list(range(12))
    assert not Path(f"/proc/{rank1}").exists()
    assert set(Path("/dev/shm").glob("mpich_shm_*")) <= before


@pytest.mark.long
@needs_mpirun
def test_a_killed_rank_leaves_nothing_of_mpi(tmp_path: Path) -> None:
    before = set(Path("/dev/shm").glob("mpich_shm_*"))
    argv = [mpirun(), "-n", "2", str(BIN / "scalescope"), "train", f"runs={tmp_path}", "name=one", *FAST, *ENDLESS]
    job = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_rows(tmp_path / "one" / "steps.jsonl", 8)
    (rank0,) = [pid for pid in descendants(job.pid) if b"PMI_RANK=0" in environment_of(pid)]
    os.kill(rank0, signal.SIGKILL)
    job.communicate(timeout=60)
    assert job.returncode != 0
    assert set(Path("/dev/shm").glob("mpich_shm_*")) <= before


@pytest.mark.long
@needs_mpirun
def test_a_rank_that_is_interrupted_while_mpi_brings_the_ranks_together_ends(tmp_path: Path) -> None:
    """At a usual exit, MPI would wait for the other rank, which waits for this one."""
    late = "import os, pathlib, time\nwhile os.environ.get('PMI_RANK') == '1' and not pathlib.Path('go').exists():\n"
    (tmp_path / "sitecustomize.py").write_text(f"{late}    time.sleep(0.05)\n")
    argv = [mpirun(), "-n", "2", str(BIN / "scalescope"), "train", f"runs={tmp_path}", "name=one", *FAST, *ENDLESS]
    job = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                           env={**os.environ, "PYTHONPATH": str(tmp_path)})  # fmt: skip

    def meeting() -> list[int]:
        ranks = [pid for pid in descendants(job.pid) if b"PMI_RANK=0" in environment_of(pid)]
        return [pid for pid in ranks if "libmpi" in Path(f"/proc/{pid}/maps").read_text()]

    await_that(lambda: bool(meeting()))
    time.sleep(0.5)  # the library is there: it waits
    os.kill(meeting()[0], signal.SIGINT)
    (tmp_path / "go").touch()
    _, said = job.communicate(timeout=100)
    assert job.returncode == ExitCode.RUN_FAILED and "scalescope: interrupted" in said, said
    assert not (tmp_path / "one").exists()


@pytest.mark.long
@needs_mpirun
def test_ranks_do_not_wait_for_one_that_ends_before_it_comes_to_mpi(tmp_path: Path) -> None:
    """MPICH's mpirun waits with them, as long as no rank has died by a signal."""
    (tmp_path / "sitecustomize.py").write_text("import os\nif os.environ.get('PMI_RANK') == '1': os._exit(3)\n")
    argv = [mpirun(), "-n", "2", str(BIN / "scalescope"), "train", f"runs={tmp_path}", "name=one", *FAST, *ENDLESS]
    job = subprocess.run([*argv, "launch.init_limit_s=8"], capture_output=True, text=True, timeout=100, check=False,
                         env={**os.environ, "PYTHONPATH": str(tmp_path)})  # fmt: skip
    assert job.returncode == ExitCode.RUN_FAILED and "in _mpi_master" in job.stderr, job.stderr
    assert not (tmp_path / "one").exists()


@pytest.mark.long
@needs_mpirun
def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        argv = [
            "-env",
            "MASTER_ADDR",
            "127.0.0.1",
            "-env",
            "MASTER_PORT",
            str(port),
            str(BIN / "scalescope"),
            "train",
        ]
        job = subprocess.Popen([mpirun(), "-n", "2", *argv, f"runs={tmp_path}", "name=one", *FAST, *ENDLESS],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
        said = end_of(FAULTS["port_taken"], job, RunFolder(tmp_path / "one"), time.monotonic())
    assert f"port {port} of this host" in said and "set MASTER_PORT to a free one" in said
    assert list(tmp_path.iterdir()) == []
