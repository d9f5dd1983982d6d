"""Ranks of which one has more operators a step than a window needs end it together: nobody records others' writing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

from scalescope.records.folder import RunFolder
from scalescope.train.measure.tracing.agreed_end import AgreedEnd

ROOT = Path(__file__).resolve().parent.parent


def test_the_window_is_as_long_as_the_rank_s_that_has_room_for_least() -> None:
    store = dist.HashStore()
    ends = [AgreedEnd(store, "train/0") for _ in range(3)]
    for rank, steps in enumerate((10, 3, 0)):
        ends[rank].tell(22, steps)
    assert [ends[0].least(22, 10), ends[1].least(22, 3)] == [3, 3]  # who has no room at all records nothing, alone
    assert ends[0].least(60, 10) == 10 and AgreedEnd(store, "train/1").least(22, 10) == 10


@pytest.mark.job
def test_both_ranks_record_the_steps_that_the_one_with_more_operators_does(tmp_path: Path) -> None:
    """Rank 0 recorded 7 steps and rank 1 three: rank 0's took 331 ms, waiting for rank 1 to write, where 186 were."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, str(ROOT / "tests" / "unlike_operators_job.py")], cwd=tmp_path, env=environment,
                          capture_output=True, text=True, encoding="utf-8", timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "are recorded, not 22 to 31: a step has so many operators that they are enough" in done.stderr
    recording = RunFolder(tmp_path / "runs" / "unlike").read_recording()
    assert recording is not None and [one.steps for one in recording.windows] == [[22, 23, 24]]
    traces = sorted((tmp_path / "runs" / "unlike" / "traces").iterdir())
    assert [path.name for path in traces] == ["rank0.22.pt.trace.json.gz", "rank1.22.pt.trace.json.gz"]
