"""A script of two ranks of which one runs so many operators a step that its window would be the shorter one."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from scalescope import profile_steps


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile_steps("unlike", samples=8, name="unlike", analyze=False) as profile:
        for _ in range(36):
            optimizer.zero_grad()
            batch = torch.randn(8, 64)
            for _ in range(3_000 if dist.get_rank() == 1 else 0):
                batch = batch + 0.0
            model(batch).sum().backward()
            optimizer.step()
            profile.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
