"""A small network, a layer of which is in another precision on one rank, or on all, traced once for each: OUT/CASE.

torchrun --standalone --nproc-per-node 2 -m tests.precision_job OUT CASE …   (tests/data/precisions was made so)
"""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from tests.small_traces import record_cases, record_steps

STEPS, BATCH, WIDTH, LAYERS = 5, 4096, 128, 3
CASES = (
    "alike",  # all compute in float32
    "double",  # rank 1 computes a layer in float64
    "all_double",  # all ranks do
    "narrow",  # all compute in bfloat16 by autocast, and rank 1 a layer in float32
    "checked",  # rank 0 computes a figure of its own in float64
)


class Layer(nn.Module):
    """A linear layer with a residual, in double precision on demand, or out of autocast."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.linear, self.norm, self.dtype = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), dtype

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(F.relu(self.linear(x) + x) if self.dtype is None else self._wide(x))
        return out

    def _wide(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            wide, weight, bias = (one.to(self.dtype) for one in (x, self.linear.weight, self.linear.bias))
            return F.relu(F.linear(wide, weight, bias) + wide).float()


def record(case: str, out: Path) -> None:
    torch.manual_seed(0)
    rank = dist.get_rank()
    here = case == "all_double" or (case in ("double", "narrow") and rank == 1)
    dtype = {"narrow": torch.float32}.get(case, torch.float64) if here else None
    layers = nn.Sequential(*(Layer(dtype if at == 1 else None) for at in range(LAYERS)))
    net = nn.parallel.DistributedDataParallel(layers, broadcast_buffers=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=case == "narrow"):
            logits = net(torch.rand(BATCH, WIDTH))
        if case == "checked" and rank == 0:
            with torch.no_grad():
                (logits.double().t() @ logits.double()).square().mean()
        logits.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(3):
        step()
    dist.barrier()
    record_steps(out / case / f"rank{rank}.json", step, STEPS, shapes=True)


if __name__ == "__main__":
    record_cases(record, CASES)
