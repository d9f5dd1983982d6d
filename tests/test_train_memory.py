"""Running out of memory ends a job with what it asked for, and with settings that need less, each by about how much."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scalescope.records.folder import RunFolder
from scalescope.train.memory_advice import Way, ways_to_need_less
from scalescope.train.out_of_memory import is_out_of_memory
from tests.train_runs import FAST, compose

ROOT = Path(__file__).resolve().parent.parent
LIMIT_BYTES = 12 * 2**30  # of address space: torch alone takes several GB of it


def ways(*overrides: str, ranks: int = 4, samples: int = 32) -> dict[str, float]:
    config = compose("model=gpt_small", "model.batch_size=32", *overrides)
    return {way.override: way.saves_bytes for way in ways_to_need_less(config, ranks, samples, 124_475_904, 50e9)}


def test_each_way_to_need_less_comes_with_an_estimate() -> None:
    found = ways()
    activations = 50e9 - 124_475_904 * 16
    assert found == {
        "model.batch_size=16": pytest.approx(activations / 2),
        "accumulate=2": pytest.approx(activations / 2),
        "recompute=true": pytest.approx(12 * 32 * 1024 * 768 * 15 * 2),
        "strategy=fsdp2": pytest.approx(124_475_904 * 16 * 3 / 4),
        "strategy=zero1": pytest.approx(124_475_904 * 8 * 3 / 4),
    }
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert str(Way("accumulate=2", 24.04e9)) == "accumulate=2 (about 24.0 GB less)"


@pytest.mark.job
def test_only_what_the_job_does_not_do_already_is_advised() -> None:
    assert set(ways("recompute=true", "strategy=fsdp2", "accumulate=2")) == {"model.batch_size=16", "accumulate=4"}
    assert set(ways("global_batch_size=128", "recompute=true", ranks=1)) == {"accumulate=2"}
    assert set(ways("model.batch_size=1", "strategy=zero3", samples=1)) == {"recompute=true"}
    assert ways("strategy=zero3")["accumulate=2"] > ways()["accumulate=2"]  # less of the peak is states


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(),
                                   RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")])  # fmt: skip
def test_memory_that_comes_to_its_end_is_known_by_its_errors(error: Exception) -> None:
    assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


@pytest.mark.job
def test_a_rank_that_runs_out_of_memory_ends_the_job_with_the_way_out(tmp_path: Path) -> None:
    """The logits of one step would be 52 GB; the processes' address space is limited to less."""
    overrides = ("model=gpt_tiny", "model.vocabulary=200000", "model.batch_size=512", "model.layers=1", "steps=8",
                 "model.width=16", "warmup_steps=1", "profiler=none")  # fmt: skip
    scalescope = [sys.executable, "-m", "scalescope", "train", "launch.ranks=1", f"runs={tmp_path}", "name=oom"]
    done = subprocess.run(
        [*scalescope, *FAST, *overrides],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES)),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    said = RunFolder(tmp_path / "oom").read_info().message or ""
    assert "ran out of host memory: it asked for 52.4 GB more" in said
    assert "accumulate=2 (about 26." in said and "model.batch_size=256" in said and "recompute=true" in said
    assert said in done.stderr
