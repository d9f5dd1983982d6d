"""Jobs on one CPU that train a little, and then read a tensor in a loop of Python, or not: one trace for each kind.

python tests/loops_job.py OUT KIND…     (writes OUT/KIND/rank0.3.pt.trace.json.gz)
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

#: What is read a step: rows of values.
ROWS, COLUMNS = 250, 16


def read(_: nn.Module) -> object:
    return [sorted(float(value) for value in row) for row in torch.randn(ROWS, COLUMNS)]


def read_at_once(_: nn.Module) -> object:
    return [sorted(row) for row in torch.randn(ROWS, COLUMNS).tolist()]


def norms(model: nn.Module) -> object:
    return [one.grad.norm().item() for one in model.parameters() if one.grad is not None]


KINDS: dict[str, Callable[[nn.Module], object]] = {one.__name__: one for one in (read, read_at_once, norms)}


def main(folder: Path, kind: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(128, 128) for _ in range(7)))
    optimizer = torch.optim.AdamW(model.parameters())

    def write(profiler: profile) -> None:
        (folder / kind).mkdir(parents=True)
        profiler.export_chrome_trace(str(folder / kind / "rank0.3.pt.trace.json.gz"))

    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=2, active=3, repeat=1),
        on_trace_ready=write,
    ) as profiler:
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(256, 128)).pow(2).mean().backward()
            optimizer.step()
            KINDS[kind](model)
            profiler.step()


if __name__ == "__main__":
    for name in sys.argv[2:]:
        main(Path(sys.argv[1]), name)
