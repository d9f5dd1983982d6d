"""Jobs beyond data parallelism on real gloo ranks: what they are by their own arithmetic is what analyze says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scalescope.scaling.trace.communication_args import communication_of
from scalescope.scaling.trace.events import decode_events
from tests.made_once import made_once

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "benchmarks" / "parallel_truth.py"
CASES = "gpipe_slow,1f1b,interleaved,tp,ep,ep_even"


def _check(out: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*launch, str(SCRIPT), "make", str(out), "--cases", CASES], env=environment, check=True, timeout=200)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "check", str(out), "--cases", CASES, "--markdown"], env=environment,
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    (out / "table.md").write_text(done.stdout)


@pytest.mark.job
@pytest.mark.quiet
@pytest.mark.parametrize("case", CASES.split(","))
def test_the_analysis_says_what_the_jobs_own_arithmetic_says(
    case: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = (made_once(tmp_path_factory, "parallel_truth", _check) / "table.md").read_text().splitlines()
    own = [line for line in lines if line.startswith(f"| {case} ")]
    assert len(own) >= 3, lines
    assert all(line.endswith("| right |") for line in own), own


def test_gloos_all_to_all_says_what_is_sent_and_what_is_received() -> None:
    text = b"""[{"ph": "X", "cat": "cpu_op", "name": "c10d::alltoall_base_", "ts": 1, "dur": 1, "args": {
        "Input Dims": [[3072, 64], [2048, 64], [], [], [], [], []],
        "Input type": ["float", "float", "", "", "", "Scalar", "Scalar"],
        "Concrete Inputs": ["", "", "", "[1536, 1536]", "[1536, 512]", "False", "-1"]}}]"""
    (event,) = decode_events(text, exact=False)
    found = communication_of(event.args, event.name)
    assert found is not None and found.both_counts
    assert (found.operation, found.in_elements, found.out_elements) == ("all_to_all", 2048 * 64, 3072 * 64)


#: Of NCCL on two H200s, torch 2.11: each rank's window begins at another of the transfers, whose first say nothing.
ON_GPUS = ROOT / "tests" / "data" / "pipelines_h200x2"


def test_all_that_is_said_of_pipelines_on_two_gpus_is_right() -> None:
    """A slow stage under GPipe, and two stages a rank, against their own arithmetic and a reader that is not ours."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "check", str(ON_GPUS), "--markdown"], env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for case in ("gpipe_slow", "interleaved"):
        assert f"| {case} | the traces are good | good | good | right |" in done.stdout
        assert f"| {case} | micro-batches | 4 | 4 | right |" in done.stdout
