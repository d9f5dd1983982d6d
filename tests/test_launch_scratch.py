"""What loading processes leave in the temporary folder goes with the job, also when they are killed."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scalescope.launch.scratch import remove_scratch

pytestmark = pytest.mark.job

ROOT = Path(__file__).resolve().parent.parent
LOADS = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
from scalescope.launch.scratch import share_scratch

class Ones(Dataset):
    def __len__(self): return 1000
    def __getitem__(self, at): return torch.ones(1000)

if sys.argv[1] == "shared": share_scratch()
batches = iter(DataLoader(Ones(), batch_size=None, num_workers=2))
for _ in range(8): next(batches)
print(*[child.pid for child in batches._workers], flush=True)
sys.stdin.readline()
"""


def loading(temporary: Path, how: str) -> tuple["subprocess.Popen[str]", list[int]]:
    """Start a process with two loading processes; returns it and theirs."""
    environ = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT), "SCALESCOPE_LAUNCHER": str(os.getpid())}
    rank = subprocess.Popen([sys.executable, "-c", LOADS, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, env=environ)  # fmt: skip
    assert rank.stdout is not None
    return rank, [int(pid) for pid in rank.stdout.readline().split()]


def kill(loaders: list[int], rank: "subprocess.Popen[str]") -> None:
    """Kill a rank's loading processes. The rank is stopped meanwhile: one that hears of the first one's death ends the
    others itself, on a busy machine before this process comes to them."""
    rank.send_signal(signal.SIGSTOP)
    for pid in loaders:
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A temporary folder with a short name: sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="ss-") as folder:
        yield Path(folder)


def test_killed_loading_processes_leave_nothing_behind(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, others = loading(temporary, "plain")
    assert len(list(temporary.glob("pymp-*"))) >= 2, "each has a folder of its own, or this test tests nothing"
    kill(others, plain)
    plain.kill()
    plain.wait()
    before = set(temporary.iterdir())
    rank, loaders = loading(temporary, "shared")
    (own,) = set(temporary.iterdir()) - before
    kill(loaders, rank)
    rank.send_signal(signal.SIGCONT)
    rank.communicate("go\n")
    assert not own.exists(), "a rank that ends by itself"
    rank, loaders = loading(temporary, "shared")
    kill(loaders, rank)
    rank.kill()
    rank.wait()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    remove_scratch()
    assert set(temporary.iterdir()) == before, "a rank that is killed, and its launcher"
