"""A job on a CPU whose gradients are dense and large, or a graph network's, whose activations are, recorded by a
tracer: how many fresh pages its steps take.

Run as `python -m tests.fresh_pages FOLDER with|without WARMUP [graph]`: prints the page faults of steps before its
window, in it, and after it, a line each.
"""

import resource
import sys
from pathlib import Path

import torch
from torch import nn

from scalescope.train.measure.schedule import Window
from scalescope.train.measure.tracing.kineto import Tracer
from scalescope.train.measure.tracing.room import Room
from tests.train_runs import compose


class Graph(nn.Module):
    """Three layers over 7,680 nodes and their neighbours: tensors of 4 MB, which live for a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes, self.edges = torch.randn(7_680, 128), torch.randint(0, 7_680, (2, 7_424))
        self.own, self.theirs = (nn.ModuleList(nn.Linear(128, 128) for _ in range(3)) for _ in "12")
        self.norms = nn.ModuleList(nn.LayerNorm(128) for _ in range(3))

    def forward(self) -> torch.Tensor:
        values = self.nodes
        for own, theirs, norm in zip(self.own, self.theirs, self.norms, strict=True):
            sums = torch.zeros_like(values).index_add(0, self.edges[0], values.index_select(0, self.edges[1]))
            degree = torch.zeros(7_680).index_add(0, self.edges[0], torch.ones(7_424)).clamp(min=1)
            values = torch.relu(norm(own(values) + theirs(sums / degree[:, None])))
        return torch.as_tensor(values.square().mean())


def main(folder: Path, room: str, warmup: int, job: str = "tables") -> None:
    opened = Window.of(12, warmup, 8)
    torch.set_num_threads(1)
    if room == "without":
        Room.make = lambda self, steps, ranks=1: 0  # type: ignore[method-assign]
    tables = nn.ModuleList(nn.EmbeddingBag(12_000, 32, mode="sum") for _ in range(8))
    graph = Graph() if job == "graph" else None
    optimizer = torch.optim.Adagrad((tables if graph is None else graph).parameters(), lr=0.01)
    tracer = Tracer(compose().profiler, torch.device("cpu"), 0, {}, lambda: folder)
    faults = []
    for step in range(opened.end + 8):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        ids = torch.randint(0, 12_000, (256, 8))
        window = opened if step in opened else None
        if window is not None:
            tracer.before(window, step)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        with tracer.step(window, step):
            optimizer.zero_grad()
            if graph is not None:
                graph().backward()
            else:
                values = [table(ids) for table in tables]
                for row in torch.stack(values).sum(0).detach()[:64]:  # small operators, as a metric has
                    row.sum().item()
                torch.stack(values).square().mean().backward()
            optimizer.step()
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
        if window is not None:
            tracer.after(window, step)
    for part in (
        faults[opened.first - 6 : opened.first],
        faults[opened.active : opened.end],
        faults[opened.end + 2 :],
    ):
        print(*part)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
