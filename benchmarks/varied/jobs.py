"""The varied jobs: each returns what trains once, disturbed by a cause where one is given."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from varied import layers
from varied.layers import CUDA, Injected

Step = Callable[[str | None], None]

#: How long a host is disturbed for, s.
_UNIT_S = 0.012 if CUDA else 0.02
_OWN_PRODUCTS, _BESIDE_PRODUCTS = 60, 30


class _Causes:
    """What causes do outside of layers."""

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device()) if CUDA else torch.device("cpu")
        self.last = dist.get_rank() == dist.get_world_size() - 1
        edge = 4096 if CUDA else 256
        self._square = torch.randn(edge, edge, device=self.device, dtype=torch.bfloat16)
        self._aside = torch.cuda.Stream() if CUDA else None
        self._hosted = torch.randn(3_000_000 if CUDA else 300_000)
        self._extra = torch.zeros(16_000_000 if CUDA else 200_000, device=self.device)

    @contextmanager
    def within(self, cause: str | None) -> Iterator[None]:
        """Disturb what runs inside: by its layers, or from beside."""
        Injected.cause = cause
        if cause == "cotenant" and self.last and self._aside is not None:
            with torch.cuda.stream(self._aside):
                self._multiply(_BESIDE_PRODUCTS)
        yield
        Injected.cause = None

    def load(self, cause: str | None) -> None:
        if cause == "load_all" or (cause == "load_one" and self.last):
            with torch.profiler.record_function("dataloader.next"):
                self._compute_once_device_is_done()

    def before_optimizer(self, cause: str | None) -> None:
        if cause == "stall_all" or (cause == "stall_one" and self.last):
            self._wait()
            time.sleep(_UNIT_S)
        elif cause == "python_one" and self.last:
            self._compute_once_device_is_done()
        elif cause == "own" and self.last:
            self._multiply(_OWN_PRODUCTS)
        elif cause == "pageable_one" and self.last:
            for _ in range(4):
                self._hosted.to(self.device)
        elif cause == "empty_cache" and CUDA:
            torch.cuda.empty_cache()
        elif cause == "extra_reduce":
            for _ in range(4):
                dist.all_reduce(self._extra)

    def _compute_once_device_is_done(self) -> None:
        self._wait()  # a host that is ahead by more would hide it
        until, held = time.perf_counter() + _UNIT_S, dict[int, str]()
        while time.perf_counter() < until:
            held[len(held) % 1000] = str(len(held))

    def _wait(self) -> None:
        if CUDA:
            torch.cuda.current_stream().synchronize()

    def _multiply(self, times: int) -> None:
        for _ in range(times):
            torch.mm(self._square, self._square)


def job(name: str) -> Step:
    """Return a job's step. Raises KeyError for one that there is not."""
    causes = _Causes()
    inner = _JOBS[name](causes)

    def step(cause: str | None) -> None:
        with causes.within(cause):
            causes.load(cause)
            inner(cause)

    return step


def _made(causes: _Causes, rows: int = layers.BATCH, steps: int = layers.LENGTH) -> Tensor:
    return torch.randn(rows, steps, layers.DIM, device=causes.device, dtype=torch.bfloat16)


def _trained(causes: _Causes, model: nn.Module, batch: Tensor, larger: Tensor | None = None,
             run: Callable[[Tensor], Tensor] | None = None, half: bool = False) -> Step:  # fmt: skip
    """Return a plain step; `run`: the model compiled; `larger`: the batch of a rank that has more rows."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=CUDA)
    called = model if run is None else run  # the compiled one has no length, and is asked for it by `or`

    def step(cause: str | None) -> None:
        optimizer.zero_grad(set_to_none=True)
        if run is not None and cause == "items":
            for value in batch[0, 0, :12]:
                value.item()
            Injected.cause = None  # inside it would be compiled
        with torch.autocast(causes.device.type, torch.bfloat16) if half else nullcontext():
            out = called(larger if larger is not None and cause == "rows" and causes.last else batch)
            loss = out.float().pow(2).mean()
        loss.backward()
        causes.before_optimizer(cause)
        optimizer.step()

    return step


def _fsdp2(causes: _Causes) -> Step:
    from torch.distributed.fsdp import fully_shard

    model = layers.Decoder(layers.Block).to(causes.device, torch.bfloat16)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return _trained(causes, model, _made(causes))


def _compiled(causes: _Causes) -> Step:
    model = DistributedDataParallel(layers.Decoder(layers.Block).to(causes.device, torch.bfloat16))
    return _trained(causes, model, _made(causes), run=torch.compile(model))


def _tiny(causes: _Causes) -> Step:
    deep = layers.Decoder(layers.Block, 2 * layers.LAYERS).to(causes.device, torch.bfloat16)
    return _trained(causes, DistributedDataParallel(deep), _made(causes, 1, 64))


def _vit(causes: _Causes) -> Step:
    model = DistributedDataParallel(layers.Decoder(layers.Checkpointed).to(causes.device), static_graph=True)
    batch = _made(causes)
    more = torch.cat([batch, batch[: max(1, layers.BATCH // 3)]])
    return _trained(causes, model, batch, larger=more, half=True)


def _tp(causes: _Causes) -> Step:
    model = layers.Decoder(lambda: layers.Block(split=dist.get_world_size())).to(causes.device, torch.bfloat16)
    return _trained(causes, model, _made(causes))


def _moe(causes: _Causes) -> Step:
    return _trained(causes, layers.Decoder(layers.Experts, 4).to(causes.device, torch.bfloat16), _made(causes))


def _conv_fp16(causes: _Causes) -> Step:
    plain = nn.Sequential(*(layers.Mixer() for _ in range(layers.CONV_LAYERS)))
    plain = plain.to(causes.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    model = DistributedDataParallel(plain, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    scaler = torch.amp.GradScaler(causes.device.type, enabled=CUDA)
    batch = torch.randn(layers.CONV_BATCH, layers.CONV_WIDTH, layers.CONV_EDGE, layers.CONV_EDGE, device=causes.device)
    batch = batch.to(memory_format=torch.channels_last)

    def step(cause: str | None) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(causes.device.type, torch.float16 if CUDA else torch.bfloat16):
            loss = model(batch).float().pow(2).mean()
        scaler.scale(loss).backward()
        causes.before_optimizer(cause)
        scaler.step(optimizer)
        scaler.update()

    return step


def _pipe(causes: _Causes) -> Step:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, world, rows = dist.get_rank(), dist.get_world_size(), 2 if CUDA else 1
    model = layers.Stage().to(causes.device, torch.bfloat16)
    sample = _made(causes, rows).requires_grad_()
    stage = PipelineStage(model, rank, world, causes.device, input_args=(sample,), output_args=(sample,))
    micro_batches = 2 * world
    schedule = Schedule1F1B(stage, micro_batches, loss_fn=lambda out, _: out.float().pow(2).mean())
    batch, target = _made(causes, rows * micro_batches), torch.zeros(rows * micro_batches, 1, device=causes.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=CUDA)

    def step(cause: str | None) -> None:
        optimizer.zero_grad(set_to_none=True)
        if rank == 0:
            schedule.step(batch)
        elif rank == world - 1:
            schedule.step(target=target, losses=[])
        else:
            schedule.step()
        causes.before_optimizer(cause)
        optimizer.step()

    return step


_JOBS: dict[str, Callable[[_Causes], Step]] = {
    "fsdp2": _fsdp2, "vit": _vit, "conv_fp16": _conv_fp16, "tp": _tp, "pipe": _pipe, "moe": _moe, "compiled": _compiled,
    "tiny": _tiny,
}  # fmt: skip
