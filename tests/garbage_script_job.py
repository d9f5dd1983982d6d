"""A loop of somebody's own under `profile_steps`: rank 1 collects Python's garbage in each step, by `gc.collect()`."""

import gc
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from scalescope import profile_steps

STEPS = 18


def main(runs: str) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    gc.unfreeze()
    gc.disable()  # no other collection than the step's own
    heap = [[number] for number in range(40_000)] if dist.get_rank() == 1 else []
    model = DistributedDataParallel(nn.Sequential(*[nn.Linear(128, 128) for _ in range(4)]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with profile_steps("garbage", runs=runs, name="garbage", wait=4, warmup=1, analyze=False) as profile:
        for _ in range(STEPS):
            loss = model(torch.ones(64, 128)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if heap:
                gc.collect()
            profile.step(loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
