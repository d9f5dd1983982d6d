"""A small script with a part of its own that costs each step, traced once for each, with stacks: OUT/CASE.

torchrun --standalone --nproc-per-node 2 -m tests.lines_job OUT CASE …   (tests/data/lines was made so)
Of Python's frames those of torch and the standard library that are over soon are left out.
"""

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile, schedule
from torch.utils.data import DataLoader, Dataset

from tests.small_traces import record_cases

CASES = ("stall", "apart", "both", "loop", "loader", "bare", "reads", "walked", "by_hand", "metrics", "own")
STEPS, BATCH, WIDTH, LAYERS, HELD_UP_S = 4, 64, 256, 8, 0.03
#: Frames that are left out take less, µs.
_SHORT_US = 200.0


class Rows(Dataset[Tensor]):
    """A row at a time, which takes its time where that is the case."""

    def __init__(self, each_s: float) -> None:
        self.each_s = each_s

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> Tensor:
        return self.decoded(index)

    def decoded(self, index: int) -> Tensor:
        time.sleep(self.each_s)
        return torch.full((WIDTH,), index / 1000)


def audit() -> None:
    """Stand still."""
    time.sleep(HELD_UP_S)


def report() -> None:
    """Stand still as well."""
    time.sleep(HELD_UP_S)


def both() -> None:
    audit()
    report()


def figures(x: Tensor) -> float:
    """Read values one by one."""
    return sum(float(value) for value in x.flatten()[:2000])


def walk(x: Tensor) -> Tensor:
    """Compute row by row."""
    for row in range(400):
        x[row % BATCH] += 1.0
    return x


def updated(parameters: list[Tensor], averages: list[Tensor]) -> None:
    """Make steps of Adam's kind, one parameter at a time."""
    for parameter, average in zip(parameters, averages, strict=True):
        assert parameter.grad is not None
        average.mul_(0.9).addcmul_(parameter.grad, parameter.grad, value=0.1)
        parameter.data.copy_(parameter.data - 1e-4 * parameter.grad / (average.sqrt() + 1e-8))


def looked_at(x: Tensor) -> Tensor:
    """Compute what no gradient needs."""
    return torch.stack([torch.histc(x, 2000) for _ in range(30)])


def batches(case: str) -> Iterator[Tensor]:
    if case == "loader":
        yield from DataLoader(Rows(HELD_UP_S / BATCH), BATCH)
    elif case == "bare":
        rows = Rows(HELD_UP_S / BATCH)
        while True:
            yield torch.stack([rows[at] for at in range(BATCH)])
    while True:
        yield torch.rand(BATCH, WIDTH)


def train(case: str, out: Path) -> None:
    rank = dist.get_rank()
    held_up = rank == 1
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    averages = [torch.zeros_like(one) for one in model.parameters()]
    fetch = batches(case)

    def finished(prof: profile) -> None:
        file = out / case / f"rank{rank}.json"
        prof.export_chrome_trace(str(file))
        pack(file)

    with profile(schedule=schedule(wait=0, warmup=2, active=STEPS), on_trace_ready=finished, with_stack=True) as prof:
        for _ in range(STEPS + 2):
            x = next(fetch)
            if case == "walked":
                x = walk(x)
            loss = model(x).square().mean()
            if held_up and case == "stall":
                audit()
            elif held_up and case == "apart":
                audit()
                x = x + 1
                report()
            elif held_up and case == "both":
                both()
            elif held_up and case == "loop":
                time.sleep(HELD_UP_S)
            optimizer.zero_grad()
            loss.backward()
            if case == "by_hand":
                updated(list(model.parameters()), averages)
            else:
                optimizer.step()
            if case == "reads":
                figures(x)
            elif case == "metrics" or (case == "own" and held_up):
                looked_at(x)
            prof.step()


def pack(file: Path) -> None:
    """Leave what a trace says of times and names, packed, beside its name."""
    trace = json.loads(file.read_text(encoding="utf-8"))
    trace.pop("traceName", None), trace.pop("host_name", None)
    events = [one for one in trace["traceEvents"] if one["ph"] == "X"]
    for one in events:
        one.pop("args", None)
    trace["traceEvents"] = [
        one
        for one in events
        if one["cat"] != "python_function" or __file__.endswith(one["name"].partition("(")[0]) or one["dur"] > _SHORT_US
    ]
    packed = gzip.compress(json.dumps(trace, separators=(",", ":")).encode(), 9, mtime=0)
    file.with_suffix(".json.gz").write_bytes(packed)
    file.unlink()


def record(case: str, out: Path) -> None:
    """Trace one case."""
    (out / case).mkdir(parents=True, exist_ok=True)
    train(case, out)
    dist.barrier()


if __name__ == "__main__":
    record_cases(record, CASES)
