"""A job on one host listens where nobody from outside can reach it, and runs nothing that a neighbour writes."""

import base64
import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

from tests.collectives_runs import start as start_sweep
from tests.processes import descendants
from tests.sockets import listening_at
from tests.train_runs import FAST, SMALL_GPT, ranks_of, start, wait_for_rows

BIN = Path(sys.executable).parent
TRAINING = (*SMALL_GPT, "data=python_stdlib", "profiler=none", "warmup_steps=2")
LOOPBACK = {"127.0.0.1", "::1"}


def addresses_until_it_ends(job: "subprocess.Popen[str]") -> set[str]:
    """Return where a job's processes have listened at any moment, from its start to its end."""
    found: set[str] = set()
    while job.poll() is None:
        found |= {address for address, _ in listening_at(job.pid, *descendants(job.pid))}
        time.sleep(0.2)
    out, err = job.communicate()
    assert job.returncode == 0, out + err
    return found


@pytest.mark.job
def test_a_training_job_listens_on_loopback_alone(tmp_path: Path) -> None:
    found = addresses_until_it_ends(start(tmp_path, "one", 2, *TRAINING, "steps=8"))
    assert found and found <= LOOPBACK


@pytest.mark.job
def test_a_sweep_listens_on_loopback_alone(tmp_path: Path) -> None:
    job = start_sweep(tmp_path, "one", 2, "operations=[all_reduce]", "sizes=[1KiB,1MiB]", "budget_s=0.2")
    found = addresses_until_it_ends(job)
    assert found and found <= LOOPBACK


@pytest.mark.job
def test_ranks_that_somebody_else_starts_on_one_host_listen_on_loopback_alone(tmp_path: Path) -> None:
    """What a launcher itself listens at is the launcher's: here it is a shell."""
    argv = f"{sys.executable} -m scalescope train runs={tmp_path} name=one {' '.join((*FAST, *TRAINING))} steps=8"
    world = "WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29571"
    script = f"{world} RANK=1 LOCAL_RANK=1 {argv} & {world} RANK=0 LOCAL_RANK=0 {argv}; wait"
    job = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = addresses_until_it_ends(job)
    assert found and found <= LOOPBACK


class _Command:
    """Runs a shell command where it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (self.command,)


@pytest.mark.job
def test_a_pickle_that_a_neighbour_writes_into_the_store_runs_nothing(tmp_path: Path) -> None:
    """torchrun's c10d rendezvous looks at this key every five seconds, and unpickles what is there."""
    job, came = start(tmp_path, "one", 2, *TRAINING, "steps=100000"), tmp_path / "came"
    try:
        wait_for_rows(tmp_path / "one" / "steps.jsonl", 2)
        for rank in ranks_of(job):  # the launcher alone is meant: they would only take the cores
            os.kill(rank, signal.SIGSTOP)
        for _, port in listening_at(job.pid):  # the launcher's: stores, and nothing else
            with suppress(dist.DistNetworkError):  # a launcher that unpickles the first one has died of it
                store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=20))
                store.set("torch.rendezvous.one", base64.b64encode(pickle.dumps(_Command(f"touch {came}"))).decode())
        time.sleep(8)
        assert job.poll() is None and not came.exists()
    finally:
        for rank in ranks_of(job):
            os.kill(rank, signal.SIGCONT)
        job.terminate()
        job.communicate(timeout=60)
