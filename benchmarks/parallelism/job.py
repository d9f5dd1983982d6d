"""The job behind `parallel_truth.py make`: work of known length on real ranks, and real exchanges between it.

Work is a kernel that spins for so many clock cycles, or, without a device, an operator that sleeps: cores that ranks
share then make no stage slower. Messages are small against it.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.profiler import ProfilerActivity, _KinetoProfile, record_function

from parallelism.cases import Case, Experts, Pipeline, Tensor

FIRST, END = 4, 9  # the first annotated step, and the first beyond the last
WIDTH = 64  # of activations
ROWS = 256  # of a micro-batch
TOKENS = 4096  # of all ranks


def make(cases: Sequence[Case], out: Path) -> None:
    """Record the traces of the cases that are for so many ranks, a folder a case. Called on every rank of a launch."""
    began = time.monotonic()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    worker = Worker(device)
    for case in cases:
        if case.ranks == worker.ranks:
            record(worker, worker.step_of(case), out / case.name)
            if worker.rank == 0:
                print(f"# {case.name}: done after {time.monotonic() - began:.1f} s", flush=True)
    if worker.rank == 0:
        (out / f"made_{worker.ranks}.json").write_text(json.dumps(worker.description()) + "\n")
    dist.barrier()
    dist.destroy_process_group()


class Worker:
    """One rank: how it works for so many units, and the steps of each case."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.on_gpu = device, device.type == "cuda"
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.unit_ms = 2.0 if self.on_gpu else 20.0
        self._cycles_a_unit = self._calibrated() if self.on_gpu else 0

    def work(self, x: torch.Tensor, units: float, backward_units: float = 0.0) -> torch.Tensor:
        """Return x, after so many units of work; its gradient comes after so many others."""
        return cast(torch.Tensor, cast(Any, Work).apply(x, self._spend, units, backward_units))

    def step_of(self, case: Case) -> Callable[[], None]:
        """Return what a step of a case does on this rank."""
        if isinstance(case.of, Pipeline):
            return self._pipeline(case.of)
        return self._tensor(case.of) if isinstance(case.of, Tensor) else self._experts(case.of)

    def description(self) -> dict[str, object]:
        """Return what the traces were made on, for the record."""
        return {
            "device": torch.cuda.get_device_name() if self.on_gpu else "cpu",
            "torch": torch.__version__,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if self.on_gpu else None,
            "ranks": self.ranks,
            "unit_ms": self.unit_ms,
        }

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def _pipeline(self, case: Pipeline) -> Callable[[], None]:
        group = dist.new_group(group_desc="mesh_pp")
        each = case.stages_a_rank
        rows = torch.empty(ROWS, WIDTH, device="meta", requires_grad=True)
        stages = []
        for place in range(self.rank, self.ranks * each, self.ranks):
            units = (1.5 if place == case.slow_stage else 1.0) / each
            module = Stage(self, units).to(self.device)
            stages.append(PipelineStage(module, place, self.ranks * each, self.device, rows, rows, group=group))
        parts = case.microbatches
        last = self.rank == self.ranks - 1
        schedule: Any
        if each > 1:
            schedule = ScheduleInterleaved1F1B(cast(Any, stages), parts, loss_fn=_loss)
        else:
            schedule = (ScheduleGPipe if case.schedule == "gpipe" else Schedule1F1B)(stages[0], parts, loss_fn=_loss)
        batch = torch.ones(ROWS * parts, WIDTH, device=self.device)

        def step() -> None:
            given = (batch,) if self.rank == 0 else ()
            schedule.step(*given, target=batch if last else None, losses=[] if last else None)

        return step

    def _tensor(self, case: Tensor) -> Callable[[], None]:
        if case.degree == self.ranks:
            tensor, data = dist.new_group(group_desc="mesh_tp"), None
        else:
            shape = (self.ranks // case.degree, case.degree)
            mesh = init_device_mesh(self.device.type, shape, mesh_dim_names=("dp", "tp"))
            tensor, data = mesh["tp"].get_group(), mesh["dp"].get_group()
        x = torch.ones(ROWS, WIDTH, device=self.device)
        gradient = torch.ones(4 * ROWS, WIDTH, device=self.device)

        def step() -> None:
            for units in (0.25, 0.5):  # forward, and backward
                for _ in range(2 * case.layers):
                    self.work(x, units)
                    dist.all_reduce(x, group=tensor)
            for _ in range(case.layers if data is not None else 0):
                dist.all_reduce(gradient, group=data)

        return step

    def _experts(self, case: Experts) -> Callable[[], None]:
        group = dist.new_group(group_desc="mesh_ep")
        own = TOKENS // self.ranks
        splits = [round(own * share) for share in case.shares]  # of this rank's tokens, to each rank's experts
        mine = splits[self.rank] * self.ranks
        tokens = torch.ones(own, WIDTH, device=self.device)
        here = torch.ones(mine, WIDTH, device=self.device)
        back = [splits[self.rank]] * self.ranks

        def step() -> None:
            self.work(tokens, 1.0)
            dist.all_to_all_single(here, tokens, back, splits, group=group)
            self.work(here, 4.0 * case.shares[self.rank])
            dist.all_to_all_single(tokens, here, splits, back, group=group)
            self.work(tokens, 1.0)

        return step

    def _spend(self, units: float) -> None:
        if self.on_gpu:
            torch.cuda._sleep(round(self._cycles_a_unit * units))
        else:
            time.sleep(self.unit_ms * units / 1e3)

    def _calibrated(self) -> int:
        cycles = 20_000_000
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(cycles)
        first.record()
        torch.cuda._sleep(cycles)
        last.record()
        last.synchronize()
        own = torch.tensor(cycles / first.elapsed_time(last) * self.unit_ms, device=self.device)
        dist.all_reduce(own, op=dist.ReduceOp.MIN)  # the same on all ranks
        return int(own)


class Work(torch.autograd.Function):
    """The identity, which takes a while: traces of CPUs have it as an operator of this name."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, spend: Callable[[float], None], units: float, later: float) -> torch.Tensor:
        ctx.spend, ctx.later = spend, later
        spend(units)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        ctx.spend(ctx.later)
        return gradient, None, None, None


class Stage(nn.Module):
    """One stage: work, twice as much backward."""

    def __init__(self, worker: Worker, units: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self._worker, self._units = worker, units

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._worker.work(x * self.weight, self._units, 2 * self._units)


def _loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (x - target).square().mean()


def record(worker: Worker, step: Callable[[], None], folder: Path) -> None:
    """Run one case's steps and write this rank's trace of the annotated ones."""
    profiler = _KinetoProfile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if worker.on_gpu else [])],
        record_shapes=True,  # gloo's collectives have no other record of their sizes
    )
    worker.synchronize()
    dist.barrier()
    for number in range(END):
        if number == FIRST - 2:
            profiler.prepare_trace()
        if number == FIRST - 1:
            profiler.start_trace()
        with record_function(f"ProfilerStep#{number}") if number >= FIRST else nullcontext():
            step()
    worker.synchronize()
    profiler.stop_trace()
    folder.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(folder / f"rank{worker.rank}.{FIRST}.pt.trace.json.gz"))
