"""A loop of somebody's own under `profile_steps`, whose loaders make batches more slowly than it takes them.

Its workers wait, as for files, and compute nothing. While the window is made ready they get ahead of the loop.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from scalescope import profile_steps

STEPS, BATCH = 48, 4


class Slow(Dataset[Tensor]):
    def __init__(self, sample_s: float) -> None:
        self.sample_s = sample_s

    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, at: int) -> Tensor:
        time.sleep(self.sample_s)
        return torch.ones(16, 64)


def main(runs: str, name: str, batch_ms: float, workers: int, active: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(64, 64) for _ in range(12))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Slow(batch_ms / 1e3 / BATCH), batch_size=BATCH, num_workers=workers)
    with profile_steps(
        "slow", runs=runs, name=name, wait=STEPS - active - 6, warmup=1, active=active, warmup_steps=2
    ) as profile:
        for batch in loader:
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profile.step(loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
