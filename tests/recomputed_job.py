"""A small convolutional network, traced once for each way in which its backward pass may call operators: OUT/CASE.

torchrun --standalone --nproc-per-node N -m tests.recomputed_job OUT CASE …   (tests/data/recomputed was made so, with
N of 1 for `one` and of 2 for the others)
"""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.small_traces import record_cases, record_steps

STEPS, CHANNELS, SIDE = 5, 16, 24
CASES = (
    "kept",  # activations are kept
    "unpacked",  # a hook computes them again as they are asked for
    "reentrant",  # a function of Python's does, and runs the block's backward pass within itself
    "one",  # as `unpacked`, of a single rank
    "twice",  # gradients of gradients, and a function of the user's own that calls products in its backward pass
)


class Product(torch.autograd.Function):
    """A product whose gradients are products, called by name."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor) -> Tensor:
        context.save_for_backward(x, weight)
        return F.relu(x @ weight + 1.0)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = context.saved_tensors
        own = F.relu(gradients[0])
        return own @ weight.t(), x.t() @ own


class Net(nn.Module):
    """Blocks of a convolution, a norm and an activation, twice each."""

    def __init__(self, case: str) -> None:
        super().__init__()
        self.case = case
        self.blocks = nn.ModuleList(nn.Sequential(*self._layers(), *self._layers()) for _ in range(4))
        self.weight = nn.Parameter(torch.rand(CHANNELS, 8))

    @staticmethod
    def _layers() -> list[nn.Module]:
        return [nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.BatchNorm2d(CHANNELS), nn.ReLU()]

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            again = self.case in ("unpacked", "reentrant", "one")
            x = checkpoint(block, x, use_reentrant=self.case == "reentrant") if again else block(x)
        out: Tensor = Product.apply(x.mean(dim=(2, 3)), self.weight)  # type: ignore[no-untyped-call]
        return out if self.case == "twice" else out.square()


def record(case: str, out: Path) -> None:
    torch.manual_seed(0)
    ranks, rank = dist.get_world_size(), dist.get_rank()
    plain = Net(case)
    net = plain if ranks == 1 else nn.parallel.DistributedDataParallel(plain, broadcast_buffers=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)

    def step() -> None:
        images = torch.rand(4, CHANNELS, SIDE, SIDE, requires_grad=True)
        if case == "twice":
            (slope,) = torch.autograd.grad(plain.blocks[0](images).square().sum(), images, create_graph=True)
            slope.square().mean().backward()
        net(images).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(3):
        step()
    dist.barrier()
    record_steps(out / case / f"rank{rank}.json", step, STEPS)


if __name__ == "__main__":
    record_cases(record, CASES)
