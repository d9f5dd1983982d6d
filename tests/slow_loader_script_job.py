"""A loop of somebody's own under `profile_steps`, whose loaders make batches more slowly than it takes them.

Its workers wait, as for files, and compute nothing. While the window is made ready they get ahead of the loop. With
epochs of fewer steps, and a step that takes longer than two workers need for a batch, only the first batch of each is
waited for, and the processes that are started for it.
"""

import sys
import time
from itertools import chain

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from scalescope import profile_steps

STEPS, BATCH = 48, 4


class Slow(Dataset[Tensor]):
    def __init__(self, sample_s: float, steps: int) -> None:
        self.sample_s, self.steps = sample_s, steps

    def __len__(self) -> int:
        return self.steps * BATCH

    def __getitem__(self, at: int) -> Tensor:
        time.sleep(self.sample_s)
        return torch.ones(16, 64)


def main(
    runs: str, name: str, batch_ms: float, workers: int, active: int, epoch: int = STEPS, step_ms: float = 0.0
) -> None:
    """`epoch`: its steps; `step_ms`: what each takes at least."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(64, 64) for _ in range(12))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Slow(batch_ms / 1e3 / BATCH, epoch), batch_size=BATCH, num_workers=workers)
    with profile_steps(
        "slow", runs=runs, name=name, wait=STEPS - active - 6, warmup=1, active=active, warmup_steps=2
    ) as profile:
        for batch in chain.from_iterable(loader for _ in range(STEPS // epoch)):
            time.sleep(step_ms / 1e3)
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profile.step(loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    runs, name, *figures = sys.argv[1:]
    batch_ms, workers, active, epoch, step_ms = [*map(float, figures), STEPS, 0.0][:5]
    main(runs, name, batch_ms, int(workers), int(active), int(epoch), step_ms)
