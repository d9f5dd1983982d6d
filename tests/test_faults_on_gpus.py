"""Faults of a GPU, on real ones: `make test-cluster` tries them where there are two."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.faults import FAULTS
from tests.faults_running import assert_failed_with_whole_rows, end_of, go, running
from tests.train_runs import SMALL_GPT

ENDLESS = (*SMALL_GPT, "data=python_stdlib", "profiler=none", "warmup_steps=2", "steps=100000", "launch.step_limit_s=5",
           "launch.device=cuda")  # fmt: skip


def gpus() -> int:
    """Return how many GPUs the driver lists, without loading torch for it."""
    if shutil.which("nvidia-smi") is None:
        return 0
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False, timeout=30)
    return listed.stdout.count("GPU ")


pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        gpus() < 2, reason="faults of a GPU need two GPUs; a CPU has no illegal addresses and no streams"
    ),
]


def test_an_illegal_address_on_one_gpu_ends_the_job(tmp_path: Path) -> None:
    act = (
        "def act():\n    wait()\n    import torch\n"
        "    there = torch.zeros(8, device='cuda')\n"
        "    torch.zeros(1, device='cuda').index_select(0, torch.full((1 << 20,), 1 << 40, device='cuda'))\n"
        "    torch.cuda.synchronize()\n"
    )
    job, folder = running(tmp_path, act, *ENDLESS)
    end_of(FAULTS["gpu_error"], job, folder, go(tmp_path))
    assert_failed_with_whole_rows(folder)


def test_a_gpu_that_sleeps_is_a_hang_that_names_its_rank(tmp_path: Path) -> None:
    """A kernel that does not end, in the stream of the steps: the host goes on launching behind it."""
    act = (
        "def act():\n    wait()\n    import torch\n    torch.cuda.set_device(1)\n"
        "    with torch.cuda.stream(torch.cuda.default_stream(1)):\n"
        "        for _ in range(200):\n            torch.cuda._sleep(2_000_000_000)\n"
    )
    job, folder = running(tmp_path, act, *ENDLESS)
    said = end_of(FAULTS["gpu_sleeps"], job, folder, go(tmp_path))
    assert "rank 1" in said
    assert_failed_with_whole_rows(folder)


def test_a_nccl_communicator_that_aborts_ends_the_job(tmp_path: Path) -> None:
    act = (
        "def act():\n    wait()\n    import torch.distributed as dist\n"
        "    dist.distributed_c10d._abort_process_group()\n"
    )
    job, folder = running(tmp_path, act, *ENDLESS)
    end_of(FAULTS["nccl_aborts"], job, folder, go(tmp_path))
    assert_failed_with_whole_rows(folder)
