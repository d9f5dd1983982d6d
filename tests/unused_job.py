"""A small network beside another one, traced once for each way in which its result may be used: OUT/CASE.

torchrun --standalone --nproc-per-node 2 -m tests.unused_job OUT CASE …   (tests/data/unused was made so)
"""

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from tests.small_traces import record_steps

STEPS, ROWS, WIDTH = 5, 1024, 256
CASES = (
    "nowhere",  # the second one's outputs go nowhere
    "target",  # … are a fixed target, and yet gradients are recorded
    "wanted",  # … are used by the loss
    "no_grad",  # … are a target, and no gradients are recorded
    "teacher",  # … are a target, of weights that are frozen, with gradients switched on
    "backbone",  # … are what the first one reads, of weights that are frozen
    "unpacked",  # … are used, and computed again in the backward pass
    "reentrant",  # … the same, by a function of Python's
    "adversary",  # … are told from others, detached, before they are used: by two backward passes
    "critic",  # … are told from others, detached, and it never learns
    "alone",  # … the same, not detached, by the judge's gradients alone; then it computes anew, and learns
    "penalty",  # … are used, and gradients of theirs as well
    "validated",  # … are used, and both run once more behind the update, for a figure to be looked at
    "validated_no_grad",  # … the same, and no gradients are recorded there
)


def tower() -> nn.Sequential:
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())))


class Net(nn.Module):
    def __init__(self, case: str) -> None:
        super().__init__()
        self.case = case
        self.own, self.other, self.judge = tower(), tower(), nn.Linear(WIDTH, 1)
        self.other.requires_grad_(case not in ("teacher", "backbone"))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.case == "backbone":
            return self.own(self.other(x)), x
        with torch.no_grad() if self.case == "no_grad" else nullcontext():
            if self.case in ("unpacked", "reentrant"):
                other = checkpoint(self.other, x, use_reentrant=self.case == "reentrant")
            else:
                other = self.other(x)
        # what goes through DDP has a node there, which hands on zeros
        return self.own(x), x if self.case == "nowhere" else other


def loss_of(case: str, model: nn.Module, net: Net, x: Tensor) -> Tensor:
    own: Tensor
    other: Tensor
    if case in ("critic", "alone"):
        other = net.other(x)
        judged = net.judge(other.detach() if case == "critic" else other)
        F.softplus(judged).mean().backward(inputs=list(net.judge.parameters()))
        return F.softplus(-net.judge(x if case == "critic" else net.other(-x))).mean()
    own, other = model(x)
    if case in ("nowhere", "backbone"):
        return own.square().mean()
    if case == "adversary":
        F.softplus(net.judge(other.detach())).mean().backward()
        return own.square().mean() + F.softplus(-net.judge(other)).mean()
    if case == "penalty":
        (slope,) = torch.autograd.grad(other.sum(), x, create_graph=True)
        return own.square().mean() + slope.square().mean()
    return F.mse_loss(own, other if case not in ("nowhere", "target", "no_grad", "teacher") else other.detach())


def main() -> None:
    out, cases = Path(sys.argv[1]), sys.argv[2:] or CASES
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for case in cases:
        torch.manual_seed(0)
        net = Net(case)
        plain = case in ("target", "adversary", "critic", "alone", "penalty", "reentrant")
        model = net if plain else DistributedDataParallel(net, find_unused_parameters=True)
        optimizer = torch.optim.SGD([one for one in net.parameters() if one.requires_grad], lr=0.01)

        def step(case: str = case, net: Net = net, model: nn.Module = model, own: torch.optim.SGD = optimizer) -> None:
            x = torch.rand(ROWS, WIDTH, requires_grad=case in ("penalty", "reentrant"))
            own.zero_grad()
            loss_of(case, model, net, x).backward()
            if model is net:
                dist.all_reduce(net.judge.bias.grad if net.judge.bias.grad is not None else torch.zeros(1))
            own.step()
            if case.startswith("validated"):
                with torch.no_grad() if case == "validated_no_grad" else nullcontext():
                    F.mse_loss(*model(x)).item()

        for _ in range(3):
            step()
        file = out / case / f"rank{os.environ['RANK']}.json"
        record_steps(file, step, STEPS, numbers=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
