"""What it costs to say live who is late and that steps became longer: µs a step, and a share of a real one.

`arrive` runs in each step on every rank (on a GPU it is one event more on the stream), the rest once a row on rank 0,
and the watch for anomalies on every rank where profiler.on_anomaly=true. The share is that of a small GPT's step under
DDP, in a world of one, its steps marked and unmarked by turns. Run it by `python benchmarks/live_cost.py`, on GPUs by
`python benchmarks/live_cost.py --device cuda` (half a minute).
"""

import argparse
import itertools
import math
import random
import statistics
import time
import timeit

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from scalescope.records.rows import StepRow
from scalescope.train.measure.anomaly import AnomalyWatch
from scalescope.train.measure.clock import CpuClock, make_clock
from scalescope.train.measure.lateness import Lateness
from scalescope.train.script.exchange_marks import mark_exchanges


def least_us(call: object, count: int) -> float:
    """Return what a call takes, the least of five rounds."""
    return 1e6 * min(timeit.repeat(call, number=count, repeat=5)) / count  # type: ignore[arg-type]


def arrive_us() -> float:
    """Return what marking the exchange takes."""
    clock = CpuClock()

    def arrive() -> None:
        clock._own_ms = math.nan
        clock.arrive()

    return least_us(arrive, 100_000)


def lateness_us(ranks: int) -> float:
    """Return what a row of so many ranks takes on rank 0."""
    lateness = Lateness()
    row = StepRow(step=0, phase="steady", step_ms=[20.0] * ranks, samples_per_s=1.0, own_ms=[5.0] * ranks)

    def look() -> object:
        lateness.take(row)
        return lateness.late

    return least_us(look, 2000)


def anomaly_us() -> float:
    """Return what the watch for longer steps takes a step."""
    watch, steps = AnomalyWatch(500), itertools.count()
    return least_us(lambda: watch.take(next(steps), 10.0), 2000)


class Blocks(nn.Module):
    """Transformer blocks between an embedding and its output: enough kernels for a step to be like a real one."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4096, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, batch_first=True) for _ in range(layers)
        )
        self.out = nn.Linear(width, 4096)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:  # (B, T) -> (B, T, 4096)
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.out(x)
        return result


def marking_us(device: torch.device) -> float:
    """Return what marking one step's exchange takes of the host: the least of many rounds with it, less without."""
    model = DistributedDataParallel(nn.Linear(8, 8).to(device), gradient_as_bucket_view=True)
    inputs, clock = torch.ones(1, 8, device=device), make_clock(device)

    def arrive() -> None:
        clock.restart()  # so that each one counts; on a GPU that is an event more than a step's mark takes
        clock.arrive()

    marks = mark_exchanges(arrive)
    least: dict[bool, float] = {}
    for at in range(60):
        marked = at % 2 == 0
        if marked:
            marks.add()
        else:
            marks.remove()
        began = time.process_time()
        for _ in range(50):
            model(inputs).sum().backward()
        took = (time.process_time() - began) * 1e6 / 50
        if device.type == "cuda":
            torch.cuda.synchronize()
        least[marked] = min(took, least.get(marked, took))
    marks.remove()
    return least[True] - least[False]


def step_shares(device: torch.device, seconds: float) -> tuple[float, float, float]:
    """Return a step's ms unmarked, what marking it adds, ms, and within what that is known, ms (95 times of 100).

    Steps are marked or not by turns of ten, in random order, so that a machine's drift is nobody's.
    """
    # on a GPU large enough that the device binds, whose steps vary by a thousandth; a host's do by several hundredths
    layers, width, batch, tokens_each = (12, 768, 64, 512) if device.type == "cuda" else (1, 64, 2, 64)
    model = DistributedDataParallel(Blocks(layers, width).to(device), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(4096, (batch, tokens_each), device=device)
    clock = make_clock(device)
    # others may use a CPU's cores meanwhile: there the process's own time counts
    now = time.perf_counter if device.type == "cuda" else time.process_time

    def step() -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def ten(marked: bool) -> float:
        marks = mark_exchanges(clock.arrive) if marked else None
        clock.restart()
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = now()
        for _ in range(10):
            clock.lap(step())
        if device.type == "cuda":
            torch.cuda.synchronize()
        took = now() - began
        if marks is not None:
            marks.remove()
        for _ in range(10):
            assert math.isfinite(clock.read().own_ms) == marked
        return took * 1e3 / 10

    for marked in (True, False):
        ten(marked)
    differences: list[float] = []
    plain: list[float] = []
    chance, until = random.Random(0), time.monotonic() + seconds
    while time.monotonic() < until or len(differences) < 3:
        first = chance.random() < 0.5
        pair = {marked: ten(marked) for marked in (first, not first)}
        differences.append(pair[True] - pair[False])
        plain.append(pair[False])
    error = 1.96 * 1.2533 * statistics.stdev(differences) / math.sqrt(len(differences))  # of a median
    return statistics.median(plain), statistics.median(differences), error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=15.0, help="that steps are timed for")
    options = parser.parse_args()
    print(f"arrive: {arrive_us():.2f} µs a step")
    for ranks in (2, 8, 64):
        print(f"lateness of {ranks} ranks: {lateness_us(ranks):.1f} µs a row")
    print(f"anomalies: {anomaly_us():.1f} µs a step")
    device = torch.device(options.device)
    torch.set_num_threads(1)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", rank=0, world_size=1, store=dist.HashStore())
    print(f"marking a step of somebody's loop: {marking_us(device):.1f} µs of the host")
    step_ms, more_ms, error_ms = step_shares(device, options.seconds)
    dist.destroy_process_group()
    print(
        f"marking a DDP step on {options.device}: {1e3 * more_ms:+.1f} ± {1e3 * error_ms:.1f} µs of {step_ms:.2f} ms, "
        f"{more_ms / step_ms:+.3%} ± {error_ms / step_ms:.3%}"
    )
