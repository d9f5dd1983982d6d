"""A small job on gloo, traced once for each way in which its hosts can be held up: OUT/CASE/rank<r>.json.gz.

torchrun --standalone --nproc-per-node 2 tests/host_job.py OUT [CASE …]   (tests/data/held_up_hosts was made so)
"""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, Dataset

#: What is injected takes so long a step, s.
HELD_UP_S = 0.04
STEPS = 5
WIDTH = 256


class Rows(Dataset[Tensor]):
    """A row at a time, the first of each batch of four late."""

    def __init__(self, delay_s: float) -> None:
        self.rows, self.delay_s = torch.rand(256, WIDTH), delay_s

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> Tensor:
        if index % 4 == 0:
            time.sleep(self.delay_s)
        return self.rows[index]


class Pause(torch.autograd.Function):
    """Passes a tensor on; its gradient takes its time."""

    @staticmethod
    def forward(context: Any, x: Tensor, pause: Callable[[], object]) -> Tensor:
        context.pause = pause
        return x.clone()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        context.pause()
        return gradients[0], None


class Job:
    """The model, and what is done to rank 1 of it, to both, or to each in its turn."""

    def __init__(self, case: str, disturbed: bool) -> None:
        self.case, self.disturbed = case, disturbed
        torch.manual_seed(0)
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(8)]
        self.halves = nn.ModuleList([nn.Sequential(*layers[:4]), nn.Sequential(*layers[4:])])
        self.optimizer = torch.optim.SGD(self.halves.parameters(), lr=0.0)
        self.heap = [[number] for number in range(100_000)] if disturbed and case == "collector" else []
        late_s = HELD_UP_S if disturbed else 0.0
        self.batches = iter(DataLoader(Rows(late_s), 4)) if case == "loader" else self.resident()
        self.scaled = torch.compile(lambda x: x / x.norm(), backend="eager", dynamic=False)

    def resident(self) -> Iterator[Tensor]:
        batch = torch.rand(4, WIDTH)
        while True:
            if self.case == "fetch":
                with record_function("read_shard"):
                    self.sleep()
            yield batch

    def sleep(self) -> None:
        if self.disturbed:
            time.sleep(HELD_UP_S)

    def step(self, number: int) -> None:
        batch = next(self.batches)
        if self.case == "front":
            self.sleep()
        if self.case == "compiled":
            self.scaled(torch.rand(3 + number, 8))
        x = self.halves[0](batch)
        if self.case == "backward":
            x = Pause.apply(x, self.sleep)  # type: ignore[no-untyped-call]
        if self.case == "by_turns" and number % 2 == dist.get_rank():
            time.sleep(HELD_UP_S)
        loss = self.halves[1](x).square().mean()
        if self.heap:
            gc.collect()
        loss.backward()
        for parameter in self.halves.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
        self.optimizer.step()
        self.optimizer.zero_grad()


def shared_core(stack: ExitStack) -> None:
    """Have this process run on one core with three that are always busy."""
    before = os.sched_getaffinity(0)
    stack.callback(os.sched_setaffinity, 0, before)
    os.sched_setaffinity(0, {max(before)})
    for _ in range(3):
        busy = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
        stack.callback(busy.wait)
        stack.callback(busy.kill)


def record(case: str, out: Path) -> None:
    """Trace one case."""
    rank = dist.get_rank()
    job = Job(case, rank == 1)
    with ExitStack() as stack:
        if case == "shared_core" and rank == 1:
            shared_core(stack)
        for number in range(3):
            job.step(100 + number)
        dist.barrier()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for number in range(STEPS):
                with record_function(f"ProfilerStep#{number}"):
                    job.step(number)
        (out / case).mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(out / case / f"rank{rank}.json.gz"))


CASES = ("front", "backward", "loader", "fetch", "collector", "compiled", "shared_core", "by_turns")


def main() -> None:
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 100
    dist.init_process_group("gloo")
    for case in sys.argv[2:] or CASES:
        record(case, Path(sys.argv[1]))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
