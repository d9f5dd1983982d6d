"""What becomes of steps whose times were on their way between ranks when one of them died."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# both exchange the times of step 0; then rank 1 dies, and rank 0 sends those of step 1
PROGRAM = """
import os, sys
from datetime import timedelta
from pathlib import Path
import torch, torch.distributed as dist
from scalescope.launch.job import Job
from scalescope.launch.watch.progress_watchdog import ProgressWatchdog
from scalescope.launch.world import World
from scalescope.records.folder import RunFolder
from scalescope.records.rows import Ceilings
from scalescope.records.sink import Sinks
from tests.train_runs import FAST, SMALL_GPT, compose
from scalescope.train.measure.accounting import Accounting
from scalescope.train.measure.clock import CpuClock
from scalescope.train.measure.energy import PowerMeter
from scalescope.train.measure.step_recorder import StepRecorder
from scalescope.train.measure.progress_markers import ProgressMarkers
from scalescope.train.measure.preemption import StopRequest
from scalescope.train.measure.schedule import make_schedule

rank, folder = int(sys.argv[1]), Path(sys.argv[2])
store = dist.TCPStore("127.0.0.1", int(sys.argv[3]), 2, is_master=rank == 0)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
config = compose(*SMALL_GPT, *FAST, "profiler=none", "steps=8", "warmup_steps=0")
job = Job(config, World(rank, 2, rank, 2, "env"), RunFolder(folder), torch.device("cpu"), "gloo", store,
          dist.group.WORLD, [], Ceilings(), Sinks(), ProgressWatchdog(store, rank, 2))
clock, rows = CpuClock(), []
recorder = StepRecorder(job, clock, make_schedule(config), Accounting(2, 4, None, None, None, None, None), 0,
                rows.append, StopRequest(), ProgressMarkers(job), PowerMeter(None))
clock.lap(torch.tensor(2.5))
recorder.finish(1)
if rank == 1:
    os._exit(0)
clock.lap(torch.tensor(2.4))
recorder._send(1)
while not recorder._pending[0].is_completed():
    pass
recorder.rescue()
try:
    recorder.settle()
except RuntimeError:
    print([(row.step, row.loss) for row in rows], flush=True)
os._exit(0)
"""


@pytest.mark.long
def test_times_that_a_death_cut_short_make_no_row(tmp_path: Path) -> None:
    """To torch the exchange has come to its end; what it received is memory that nobody has written."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(rank), str(tmp_path), str(port)], cwd=ROOT,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]  # fmt: skip
    out, said = ranks[0].communicate(timeout=60)
    ranks[1].communicate(timeout=60)
    assert out == "[(0, 2.5)]\n", said
