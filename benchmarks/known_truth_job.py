"""The job behind `known_truth.py make`: a small GPT under DDP, disturbed on purpose, each case profiled.

All cases are taken in one launch, with one model whose learning rate is 0: every step of every case computes the same
numbers, so that power and clocks are as alike as can be. Each case has the same course in time (warm-up, recording,
writing), and an undisturbed run before and after it.

Two steps are recorded before the first annotated one. Opening the profiler's window holds ranks up unequally, and by
then the ranks' collectives have levelled that out and the host is ahead of the device again.
"""

import gc
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from known_truth_cases import DATA, DEVICE_DELAY, INJECTED, LATE_ROOT, SLOW_COMPUTE, SLOW_DATA, Case
from torch import nn
from torch.profiler import ProfilerActivity, _KinetoProfile, record_function

from scalescope.train.models.gpt.config import GptConfig
from scalescope.train.models.gpt.network import Gpt

PREPARE, START, FIRST, END = 8, 10, 12, 17  # steps: CUPTI gets ready, recording begins, annotated steps begin, and end
MIB = 1 << 20


@dataclass(frozen=True)
class Size:
    """How big the job is on a kind of device."""

    layers: int
    width: int
    heads: int
    context: int
    vocabulary: int
    batch: int
    inject_ms: float
    broadcast_bytes: int
    matmul: int  # the injected matmuls are of this many rows and columns


#: The step takes about 45 ms on an H200. The host needs some 20 ms to launch it while it is profiled; and the backward
#: pass is long against the delay, so that few of the collectives that compute hides are laid bare by it.
ON_GPU = Size(6, 768, 12, 1024, 50304, 24, inject_ms=10, broadcast_bytes=64 * MIB, matmul=2048)
ON_CPU = Size(2, 64, 2, 64, 256, 4, inject_ms=80, broadcast_bytes=MIB // 4, matmul=256)


def make(cases: Sequence[Case], out: Path) -> None:
    """Record the cases' traces under `out`, one folder a case. Called on every rank of a torchrun launch."""
    began = time.monotonic()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    job = Job(ON_GPU if on_gpu else ON_CPU, device)
    gc.collect()
    gc.disable()  # a collection on one rank would be a disturbance of its own
    record(job, Case("rehearsal", synced=True, broadcast=True), None)  # the first profile loads its libraries
    for case in cases:
        if job.world_size < case.needs():
            if job.rank == 0:
                print(f"# {case.name}: left out, it needs {case.needs()} ranks", flush=True)
            continue
        record(job, case, out / case.name)
        if job.rank == 0:
            print(f"# {case.name}: done after {time.monotonic() - began:.1f} s", flush=True)
    if job.rank == 0:
        (out / "made.json").write_text(json.dumps(job.description(), indent=2) + "\n")
    dist.barrier()
    dist.destroy_process_group()


class Job:
    """The model, its batch, and what is injected into its steps."""

    def __init__(self, size: Size, device: torch.device) -> None:
        self.size, self.device = size, device
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.on_gpu = device.type == "cuda"
        torch.manual_seed(1337)
        config = GptConfig(
            kind="gpt",
            name="gpt_known_truth",
            batch_size=size.batch,
            layers=size.layers,
            heads=size.heads,
            width=size.width,
            context=size.context,
            vocabulary=size.vocabulary,
            attention="auto",
            loss_kernel="singles",
            gelu="torch",
        )
        with device:
            network = Gpt(config)
            self.tokens = torch.randint(size.vocabulary, (size.batch, size.context))
            self.targets = torch.randint(size.vocabulary, (size.batch, size.context))
            self.buffer = torch.zeros(size.broadcast_bytes // 4)
            self.left, self.right = torch.rand(2, size.matmul, size.matmul)
            self.product = torch.empty_like(self.left)
        self.model = nn.parallel.DistributedDataParallel(
            network, device_ids=[device] if self.on_gpu else None, gradient_as_bucket_view=True
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0, weight_decay=0.0)
        self.cycles_a_ms = self._cycles_a_ms() if self.on_gpu else 0.0
        self.matmuls = max(1, round(size.inject_ms / self._time_ms(lambda: self.compute(20)) * 20))

    def step(self, case: Case) -> None:
        """Run one step of a case on this rank."""
        mine = case.injection if self.rank in case.ranks_of(self.world_size) else None
        with record_function(DATA):
            if mine == SLOW_DATA:
                time.sleep(self.size.inject_ms / 1e3)
        with torch.autocast("cuda", torch.bfloat16) if self.on_gpu else nullcontext():
            loss = self.model(self.tokens, self.targets)
        if mine in (DEVICE_DELAY, LATE_ROOT):
            with record_function(INJECTED):
                self.delay()
        elif mine == SLOW_COMPUTE:
            with record_function(INJECTED):
                self.compute(self.matmuls)
        if case.broadcast:
            dist.broadcast(self.buffer, src=case.rank_of(self.world_size))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if case.synced:
            self.synchronize()

    def delay(self) -> None:
        """Hold up the device's stream; without a device, the host."""
        if self.on_gpu:
            torch.cuda._sleep(round(self.cycles_a_ms * self.size.inject_ms))
        else:
            time.sleep(self.size.inject_ms / 1e3)

    def compute(self, times: int) -> None:
        """Multiply matrices in fp32, which draws less power than the model's own bf16 does."""
        for _ in range(times):
            torch.mm(self.left, self.right, out=self.product)

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def description(self) -> dict[str, object]:
        """Return what the traces were made on, for the record."""
        return {
            "device": torch.cuda.get_device_name() if self.on_gpu else "cpu",
            "torch": torch.__version__,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if self.on_gpu else None,
            "world_size": self.world_size,
            "inject_ms": self.size.inject_ms,
            "cycles_a_ms": self.cycles_a_ms,
            "matmuls": self.matmuls,
        }

    def _cycles_a_ms(self) -> float:
        cycles = 10_000_000
        return cycles / self._time_ms(lambda: torch.cuda._sleep(cycles))

    def _time_ms(self, work: Callable[[], None]) -> float:
        """Return how long some work takes, after once unmeasured."""
        work()
        self.synchronize()
        if not self.on_gpu:
            began = time.perf_counter()
            work()
            return (time.perf_counter() - began) * 1e3
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        work()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last))


def record(job: Job, case: Case, folder: Path | None) -> None:
    """Run one case's steps and write this rank's trace of the annotated ones; without a folder, none."""
    profiler = _KinetoProfile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if job.on_gpu else [])],
        record_shapes=True,  # the collectives' sizes come with them
    )
    job.synchronize()
    dist.barrier()
    for number in range(END):
        if number == PREPARE:
            profiler.prepare_trace()
        if number == START:
            profiler.start_trace()
        with record_function(f"ProfilerStep#{number}") if number >= FIRST else nullcontext():
            job.step(case)
    profiler.stop_trace()
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(folder / f"rank{job.rank}.{FIRST}.pt.trace.json.gz"))
