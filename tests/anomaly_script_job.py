"""A loop of somebody's own under `profile_steps(on_anomaly=True)`: from step 30 on, rank 1 sleeps 100 ms in each step.

The steps before take at least 20 ms, so that one of them which is a little longer is no anomaly, and where noise makes
three in a row longer the watch is silent for ten steps alone; the first window has been recorded by then.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from scalescope import profile_steps
from tests.late_rank_job import SLEEP_S

GROWS_FROM, STEPS = 30, 100


def main(runs: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with profile_steps(
        "grown",
        runs=runs,
        name="grown",
        wait=4,
        warmup=1,
        active=3,
        warmup_steps=2,
        on_anomaly=True,
        anomaly_every=10,
        analyze=False,
    ) as profile:
        for step in range(STEPS):
            time.sleep(0.02)
            if step >= GROWS_FROM and dist.get_rank() == 1:
                time.sleep(SLEEP_S)
            loss = model(torch.ones(4, 64)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profile.step(loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
