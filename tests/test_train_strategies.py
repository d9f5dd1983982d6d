"""Every strategy computes the same: the losses of one rank on the whole batch, on two ranks that share it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FP32 = "precision=fp32"
SAME = {  # within fp32 rounding of one rank's losses
    "ddp": ["strategy=ddp", FP32],
    "ddp, small buckets": ["strategy=ddp", FP32, "strategy.bucket_mb=0.05", "strategy.static_graph=true"],
    "ddp, accumulated": ["strategy=ddp", FP32, "accumulate=2"],
    "ddp, recomputed": ["strategy=ddp", FP32, "recompute=true"],
    "fsdp2": ["strategy=fsdp2", FP32],
    "fsdp2, kept gathered": ["strategy=fsdp2", FP32, "strategy.reshard_after_forward=false", "strategy.prefetch=2"],
    "fsdp2, accumulated": ["strategy=fsdp2", FP32, "accumulate=2"],
}
ROUNDED = {  # bf16 somewhere: within its rounding
    "ddp, bf16": ["strategy=ddp", "precision=bf16"],
    "fsdp2, bf16": ["strategy=fsdp2", "precision=bf16"],
}
TESTS = Path(__file__).resolve().parent


def losses(ranks: int, cases: list[list[str]]) -> dict[str, list[float]]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    done = subprocess.run(
        [*command, str(TESTS / "strategies_worker.py"), json.dumps(cases)],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "PYTHONPATH": f"{TESTS.parent}:{TESTS}", "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line.partition(" ")[2]) for line in done.stdout.splitlines() if line.startswith("LOSSES ")]
    return {json.dumps(case): found for case, found in lines}


@pytest.fixture(scope="module")
def alone() -> list[float]:
    (found,) = losses(1, [["strategy=local", FP32]]).values()
    assert found[-1] < found[0] - 0.1
    return found


@pytest.fixture(scope="module")
def on_two_ranks() -> dict[str, list[float]]:
    return losses(2, [*SAME.values(), *ROUNDED.values(), ["strategy=local", FP32]])


@pytest.mark.parametrize("name", SAME)
def test_two_ranks_compute_what_one_does(name: str, alone: list[float], on_two_ranks: dict[str, list[float]]) -> None:
    assert on_two_ranks[json.dumps(SAME[name])] == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_arithmetic_stays_near(name: str, alone: list[float], on_two_ranks: dict[str, list[float]]) -> None:
    assert on_two_ranks[json.dumps(ROUNDED[name])] == pytest.approx(alone, rel=2e-3)


def test_without_communication_ranks_drift_apart(alone: list[float], on_two_ranks: dict[str, list[float]]) -> None:
    local = on_two_ranks[json.dumps(["strategy=local", FP32])]
    assert local[0] == pytest.approx(alone[0], rel=1e-5)
    assert local[-1] != pytest.approx(alone[-1], rel=1e-4)
