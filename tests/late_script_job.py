"""A loop of somebody's own under `profile_steps`: rank 1 is late in the midst of each backward pass from step 12 on.

It sleeps 100 ms, or three times what its steps took before where that is more: on any machine it stands out.
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from scalescope import profile_steps

SLEEPS_FROM, SLEEP_S, STEPS = 12, 0.1, 40
_took_s: list[float] = []


def _sleep(module: nn.Module, gradients: object, outputs: object) -> None:
    if os.environ["RANK"] == "1" and len(_took_s) >= SLEEPS_FROM:
        time.sleep(max(SLEEP_S, 3 * statistics.median(_took_s[:SLEEPS_FROM])))


def main(runs: str) -> None:
    dist.init_process_group("gloo")
    layers = [nn.Linear(64, 64) for _ in range(6)]
    layers[2].register_full_backward_hook(_sleep)  # after half of the pass: the first bucket has gone by then
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with profile_steps("late", runs=runs, name="late", wait=STEPS + 9, analyze=False, warmup_steps=2) as profile:
        for _ in range(STEPS):
            began_s = time.perf_counter()
            loss = model(torch.ones(4, 64)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profile.step(loss)
            _took_s.append(time.perf_counter() - began_s)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
