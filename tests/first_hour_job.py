"""A loop of somebody's own on two CPU ranks under `profile_steps`, with one cause of lost time planted in it.

torchrun --standalone --nproc-per-node 2 tests/first_hour_job.py CAUSE RUNS

Rank 1 stands still in each step for three times what a step takes without it: it loads data (`loads`), Python collects
garbage at the step's end (`collects`), or a log is written before the loss is read (`logs`). Or it computes for as long
in Python (`computes`), or has four times the batch (`uneven`).
"""

import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from scalescope import profile_steps

STEPS, SETTLED = 40, 10


def main(cause: str, runs: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    late = dist.get_rank() == 1
    torch.manual_seed(0)
    # DDP broadcasts the buffers of a BatchNorm before each forward pass: that is waited for, too
    layers = [layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.BatchNorm1d(256), nn.GELU())]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.5)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(256 if cause == "uneven" and late else 64, 256)
    took_s: list[float] = []
    with profile_steps("mine", runs=runs, name=cause, samples=64, analyze=False) as profile:
        for _ in range(STEPS):
            begun = time.perf_counter()
            stands_s = 3 * statistics.median(took_s) if late and len(took_s) >= SETTLED else 0.0
            if cause == "loads":
                time.sleep(stands_s)
            counted, since = 0, time.perf_counter()
            while cause == "computes" and time.perf_counter() < since + stands_s:
                counted += sum(range(100))
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if cause in ("collects", "logs"):
                time.sleep(stands_s)
            if cause == "logs" and late:
                loss.item()
            profile.step(loss)
            if len(took_s) < SETTLED:
                took_s.append(time.perf_counter() - begun)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
