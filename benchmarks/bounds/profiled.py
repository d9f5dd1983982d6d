"""What runs under ncu: one step of a job after its warm-up, or the ceilings that it is held against.

Profiling begins and ends by cudaProfilerStart and cudaProfilerStop (`ncu --profile-from-start off`).
"""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from scalescope.cli.front_door import main
from scalescope.train import job as training
from scalescope.train.models.resnet import network
from scalescope.train.models.resnet.config import STAGES
from scalescope.train.strategies.build import build_strategy

#: The step that is profiled: cuDNN has chosen its algorithms, the optimiser has its state, the allocator its memory.
STEP = 8
#: Of each kind; a network's further ones launch the same kernels.
_BLOCKS = 2
_COPIED_BYTES = 4 * 2**30
_PRODUCT = 8192
_REPEATS = 4


def profile_step(job: Sequence[str], limit_s: float) -> int:
    """Train, alone in a world, with one step under the profiler, or what of it fits into the limit.

    Returns the exit code.
    """
    build: Callable[..., Any] = build_strategy

    def built(*args: object) -> Any:
        strategy = build(*args)
        plain = strategy.train_step

        def train_step(batch: object, step: int) -> object:
            if step != STEP:
                return plain(batch, step)
            torch.cuda.synchronize()
            late = threading.Timer(limit_s, torch.cuda.profiler.stop)
            late.start()
            torch.cuda.profiler.start()
            loss = plain(batch, step)
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()
            late.cancel()
            print("the step was profiled", flush=True)
            return loss

        strategy.train_step = train_step
        return strategy

    setattr(training, "build_strategy", built)  # noqa: B010 (a function, which mypy lets nobody assign)
    setattr(network, "STAGES", [(width, _BLOCKS, stride) for width, _, stride in STAGES])  # noqa: B010
    shallow = [f"model.layers={_BLOCKS}"] if any(word.startswith("model=gpt") for word in job) else []
    sys.argv = ["scalescope", "train"]
    return main(["train", *job, *shallow, f"steps={STEP + 2}", "warmup_steps=2", "profiler=none",
                 "launch.step_limit_s=900"])  # fmt: skip


def profile_ceilings() -> None:
    """Run what only moves bytes, by a kernel, and a large product of random matrices, each a few times."""
    whole = torch.randn(_COPIED_BYTES // 4, device="cuda")
    copy = torch.empty_like(whole)
    left, right = (torch.randn(_PRODUCT, _PRODUCT, device="cuda").to(torch.bfloat16) for _ in range(2))
    for _ in range(3):
        torch.neg(whole, out=copy)
        left @ right
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for _ in range(_REPEATS):
        torch.neg(whole, out=copy)
        left @ right
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    if sys.argv[1] == "ceilings":
        profile_ceilings()
    else:
        sys.exit(profile_step(sys.argv[3:], float(sys.argv[2])))
