"""A training script with nothing special in it, and the three lines that have it measured.

python docs/examples/own_loop.py
torchrun --nproc-per-node 2 docs/examples/own_loop.py
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from scalescope import profile_steps  # 1

ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
on_gpu = torch.cuda.is_available()
device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
if ranks > 1:
    dist.init_process_group("nccl" if on_gpu else "gloo")

torch.manual_seed(0)
model: nn.Module = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))
model.to(device)
if ranks > 1:
    model = DistributedDataParallel(model, device_ids=[rank] if on_gpu else None)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
samples = torch.randn(2048, 256)
data = TensorDataset(samples, samples[:, :10].argmax(dim=1))
sampler = DistributedSampler(data) if ranks > 1 else None
loader = DataLoader(data, batch_size=32, sampler=sampler, shuffle=sampler is None)

with profile_steps("own-loop", samples=32) as profile:  # 2
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profile.step(loss)  # 3

if ranks > 1:
    dist.destroy_process_group()
