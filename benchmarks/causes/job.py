"""A training job on this rank: model, gradient exchange, optimizer, and a step with places to disturb it.

The learning rate is 0, so that every step of every case computes the same numbers. All weights are 0, too, unless the
kind asks for random ones: the kernels are the same, but on zeros a GPU stays below its power limit. At the limit its
clocks follow the load, which changes steps by some percent within tenths of a second, and a rank that idles 1% of the
step costs nothing, since the power that it saves is spent on the rest.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from causes.cases import RESIDENT, JobKind
from causes.loading import Batch, BatchShape, Loading, random_batch
from causes.models import ConvNet, Gpt, PausableModel

MIB = 1 << 20


@dataclass(frozen=True)
class Size:
    """How big the models are on a kind of device."""

    layers: int
    width: int
    heads: int
    context: int
    vocabulary: int
    channels: int
    stages: int
    classes: int
    side: int
    broadcast_bytes: int
    matmul: int  # rows and columns of the matrices that injected compute multiplies


# the embedding's gradient comes last, with nothing left to hide its exchange: a small vocabulary keeps that short
ON_GPU = Size(4, 1024, 16, 512, 4096, 64, 4, 1000, 64, 64 * MIB, 2048)
ON_CPU = Size(2, 64, 2, 64, 256, 8, 2, 10, 16, MIB // 4, 256)


class Hooks:
    """Where a step can be disturbed; here nothing happens. A rank that is left alone runs this."""

    amount: int | None = None  # how much of it takes as long as it should, once `start` has found that out

    def start(self) -> None:
        """Before the first step of a stretch or window."""

    def settle(self, amount: int) -> None:
        """After all ranks have started: how much all of them that do it alike do, or none would be to blame alone."""

    def stop(self) -> None:
        """After the last one, whatever happened."""

    def before_step(self) -> None: ...
    def before_forward(self) -> None: ...
    def after_forward(self, loss: Tensor) -> None: ...
    def after_backward(self) -> None: ...
    def after_step(self) -> None: ...


class Job:
    """What a rank trains, without any batch yet."""

    def __init__(self, kind: JobKind, device: torch.device) -> None:
        self.kind, self.device, self.on_gpu = kind, device, device.type == "cuda"
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.size = ON_GPU if self.on_gpu else ON_CPU
        torch.manual_seed(1337)
        self.network = self._network()
        if not kind.random_weights:
            for parameter in self.network.parameters():
                nn.init.zeros_(parameter)
        self.model = self._distributed()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0, weight_decay=0.0)
        self.buffer: Tensor | None = None
        self.batches: dict[int, Batch] = {}
        self.loading: Loading | None = None
        self.samples = 0
        self.root: int | None = None

    def prepare(self, samples: int, way: str = RESIDENT, root: int | None = None) -> None:
        """Set the batch, how it comes, and from whom each step broadcasts."""
        if self.loading is not None:
            self.loading.close()
        self.samples, self.root = samples, root
        self.loading = Loading(way, self.batch_of(samples))
        if root is not None and self.buffer is None:
            self.buffer = torch.zeros(self.size.broadcast_bytes // 4, device=self.device)

    def batch_of(self, samples: int) -> Batch:
        """Return a batch of so many samples on the device."""
        if samples not in self.batches:
            size = self.size
            shape = (
                BatchShape(samples, size.vocabulary, tokens=size.context)
                if self.kind.model == "gpt"
                else BatchShape(samples, size.classes, side=size.side)
            )
            self.batches[samples] = random_batch(shape, self.device)
        return self.batches[samples]

    def step(self, hooks: Hooks) -> None:
        """Run one step."""
        assert self.loading is not None
        hooks.before_step()
        inputs, targets = self.loading.fetch()
        hooks.before_forward()
        with self._precision():
            loss: Tensor = self.model(inputs, targets)
        hooks.after_forward(loss)
        if self.root is not None:
            assert self.buffer is not None
            dist.broadcast(self.buffer, src=self.root)
        loss.backward()
        hooks.after_backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        hooks.after_step()

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def time_ms(self, work: Callable[[], object]) -> float:
        """Return how long the device (without one: the host) takes for some work, after once unmeasured."""
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

    def _network(self) -> PausableModel:
        size = self.size
        with self.device:
            if self.kind.model == "gpt":
                return Gpt(size.layers, size.width, size.heads, size.context, size.vocabulary)
            return ConvNet(size.channels, size.stages, size.classes).to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def _distributed(self) -> nn.Module:
        if self.kind.strategy == "fsdp2":
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            assert isinstance(self.network, Gpt)
            for block in self.network.blocks:
                fully_shard(block, mp_policy=policy)
            fully_shard(self.network, mp_policy=policy)
            return self.network
        settings: dict[str, Any] = {} if self.kind.bucket_mb is None else {"bucket_cap_mb": self.kind.bucket_mb}
        if self.kind.channels is not None and self.on_gpu:
            options = dist.ProcessGroupNCCL.Options()
            options.config.min_ctas = options.config.max_ctas = self.kind.channels
            settings["process_group"] = dist.new_group(backend="nccl", pg_options=options)
        devices = [self.device] if self.on_gpu else None
        return nn.parallel.DistributedDataParallel(
            self.network, device_ids=devices, gradient_as_bucket_view=True, **settings
        )

    def _precision(self) -> Any:
        autocast = self.on_gpu and self.kind.strategy == "ddp"
        return torch.autocast("cuda", torch.bfloat16) if autocast else nullcontext()
