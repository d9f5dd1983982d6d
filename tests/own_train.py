"""Somebody's `train.py`, in a folder whose other modules have our packages' names: theirs before, during and after."""

import sys

import hardware
import records
import scaling
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import launch
from scalescope import profile_steps

settings: dict[str, object] = {"study": "scaling", "samples": 4, "tokens_per_sample": 8, "flops_per_sample": 1e6}
ranks = int(sys.argv[1])
if ranks > 1:
    dist.init_process_group("gloo")
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
wrapped = DistributedDataParallel(model) if ranks > 1 else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

with profile_steps("own", **settings, wait=8, warmup=1, active=2, warmup_steps=2, analyze=ranks > 1) as profile:
    for _ in range(14):
        loss = wrapped(torch.ones(4, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profile.step(loss)
        import report  # the first import of one that we have loaded meanwhile

if ranks > 1:
    dist.destroy_process_group()
for module in (records, launch, hardware, scaling, report):
    assert module.WHOSE == "theirs", module
