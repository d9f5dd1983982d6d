"""Page faults a step before, in and after a window of torch's profiler, of jobs on ranks that compute on CPUs.

What a window records takes memory amid the job's activations, whose pages are then fresh ones in each step. Each rank
counts its minor page faults and the kernel's time by getrusage, and times its steps. Run it by
`python benchmarks/page_faults.py` (CPUs alone, two ranks, half a minute). `--own`: the window is of
scalescope.profile_steps, which makes room for its records. `--job tables`: dense gradients of embedding tables;
`--job graph`: a graph network, whose activations have 4 MB each.
"""

import argparse
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

from scalescope import profile_steps

_BEFORE, _WARMUP, _AFTER = 20, 2, 20
#: The first steps allocate what all later ones use again.
_FIRST = 5


def network() -> nn.Module:
    """Return a CNN whose activations are of megabytes: malloc gives such pages back, and takes fresh ones."""
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


class Tables(nn.Module):
    """Embedding tables with dense gradients: 12 MB of them, and as much again in an optimiser's step."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(12_000, 32, mode="sum") for _ in range(8))
        self.out = nn.Linear(32, 10)

    def forward(self, bags: Tensor) -> Tensor:
        """`bags`: (batch, 8) rows of the tables; returns (batch, 10) logits."""
        out: Tensor = self.out(torch.stack([table(bags) for table in self.tables]).sum(0))
        return out


class Graph(nn.Module):
    """Three layers over a graph's nodes and their neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.others = (nn.ModuleList(nn.Linear(128, 128) for _ in range(3)) for _ in "12")
        self.norms = nn.ModuleList(nn.LayerNorm(128) for _ in range(3))
        self.out = nn.Linear(128, 10)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """`nodes`: (7680, 128) values, `edges`: (2, 7424), to and from; returns (64, 10) logits of the first nodes."""
        for own, others, norm in zip(self.own, self.others, self.norms, strict=True):
            sums = torch.zeros_like(nodes).index_add(0, edges[0], nodes.index_select(0, edges[1]))
            degrees = torch.zeros(len(nodes)).index_add(0, edges[0], torch.ones(edges.shape[1])).clamp(min=1)
            nodes = torch.relu(norm(own(nodes) + others(sums / degrees[:, None])))
        out: Tensor = self.out(nodes[:64])
        return out


def _job(name: str) -> tuple[nn.Module, tuple[Tensor, ...], int]:
    """Return a job's network, what it computes on, and how many logits it has."""
    if name == "cnn":
        return network(), (torch.randn(32, 3, 32, 32),), 32
    if name == "tables":
        return Tables(), (torch.randint(0, 12_000, (256, 8)),), 256
    return Graph(), (torch.randn(7_680, 128), torch.randint(0, 7_680, (2, 7_424))), 64


def run(rank: int, ranks: int, active: int, folder: str, job: str, own: bool) -> None:
    """Train in a rank, and write a line a step: its number, its faults, its ms."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    module, inputs, count = _job(job)
    model = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9) if job == "cnn" else torch.optim.Adagrad(
        model.parameters(), lr=0.01
    )  # fmt: skip
    labels = torch.randint(0, 10, (count,))
    lines = []
    with _window(active, folder, own) as window:
        for step in range(_BEFORE + _WARMUP + active + _AFTER):
            before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            optimizer.zero_grad()
            logits = model(*inputs)
            for row in logits.detach()[:64]:  # small operators, as a metric has
                row.sum().item()
            nn.functional.cross_entropy(logits, labels).backward()
            optimizer.step()
            took = 1e3 * (time.perf_counter() - begun)
            after = resource.getrusage(resource.RUSAGE_SELF)
            kernel = 1e3 * (after.ru_stime - before.ru_stime)
            lines.append(f"{step} {after.ru_minflt - before.ru_minflt} {took} {kernel}\n")
            window.step()
    Path(folder, f"rank{rank}").write_text("".join(lines))
    dist.destroy_process_group()


def _window(active: int, folder: str, own: bool) -> Any:
    if own:
        os.chdir(folder)
        return profile_steps(
            "faults", samples=1, name="faults", analyze=False, wait=_BEFORE, warmup=_WARMUP, active=active
        )
    plan = schedule(wait=_BEFORE, warmup=_WARMUP, active=active, repeat=1)
    return profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--active", type=int, default=10, help="steps that the window records")
    parser.add_argument("--job", choices=("cnn", "tables", "graph"), default="cnn")
    parser.add_argument("--own", action="store_true", help="by scalescope.profile_steps")
    given = parser.parse_args()
    opens = _BEFORE + _WARMUP
    parts = {"before": range(_FIRST, _BEFORE), "in": range(opens, opens + given.active),
             "after": range(opens + given.active + 1, opens + given.active + _AFTER)}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        spawn(run, (given.ranks, given.active, folder, given.job, given.own), nprocs=given.ranks)
        print(f"torch {torch.__version__}, {given.ranks} ranks on CPUs: the median step (the least to the most)")
        for rank in range(given.ranks):
            rows = [line.split() for line in Path(folder, f"rank{rank}").read_text().splitlines()]
            for name, steps in parts.items():
                faults, took = [int(rows[at][1]) for at in steps], [float(rows[at][2]) for at in steps]
                kernel = statistics.fmean(float(rows[at][3]) for at in steps)  # ticks: no single step's is known
                print(
                    f"rank {rank}, {name:>6} the window: {statistics.median(faults):6,.0f} page faults a step "
                    f"({min(faults):,} to {max(faults):,}), {statistics.median(took):.1f} ms, "
                    f"{kernel:.1f} of the mean one in the kernel"
                )


if __name__ == "__main__":
    main()
