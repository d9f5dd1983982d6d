"""The varied jobs: each returns what trains once, disturbed by a cause where one is given."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from varied import large_images, large_texts, layers, recurrent
from varied.disturbing import Causes, Step
from varied.layers import CUDA, Injected


def job(name: str) -> Step:
    """Return a job's step. Raises KeyError for one that there is not."""
    causes = Causes()
    inner = _JOBS[name](causes)

    def step(cause: str | None) -> None:
        with causes.within(cause):
            causes.load(cause)
            inner(cause)

    return step


def _made(causes: Causes, rows: int = layers.BATCH, steps: int = layers.LENGTH) -> Tensor:
    return torch.randn(rows, steps, layers.DIM, device=causes.device, dtype=torch.bfloat16)


def _trained(causes: Causes, model: nn.Module, batch: Tensor, larger: Tensor | None = None,
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
        causes.between(cause)
        optimizer.step()

    return step


def _fsdp2(causes: Causes) -> Step:
    from torch.distributed.fsdp import fully_shard

    model = layers.Decoder(layers.Block).to(causes.device, torch.bfloat16)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return _trained(causes, model, _made(causes))


def _compiled(causes: Causes) -> Step:
    model = DistributedDataParallel(layers.Decoder(layers.Block).to(causes.device, torch.bfloat16))
    return _trained(causes, model, _made(causes), run=torch.compile(model))


def _tiny(causes: Causes) -> Step:
    deep = layers.Decoder(layers.Block, 2 * layers.LAYERS).to(causes.device, torch.bfloat16)
    return _trained(causes, DistributedDataParallel(deep), _made(causes, 1, 64))


def _vit(causes: Causes) -> Step:
    model = DistributedDataParallel(layers.Decoder(layers.Checkpointed).to(causes.device), static_graph=True)
    batch = _made(causes)
    more = torch.cat([batch, batch[: max(1, layers.BATCH // 3)]])
    return _trained(causes, model, batch, larger=more, half=True)


def _tp(causes: Causes) -> Step:
    model = layers.Decoder(lambda: layers.Block(split=dist.get_world_size())).to(causes.device, torch.bfloat16)
    return _trained(causes, model, _made(causes))


def _moe(causes: Causes) -> Step:
    return _trained(causes, layers.Decoder(layers.Experts, 4).to(causes.device, torch.bfloat16), _made(causes))


def _conv_fp16(causes: Causes) -> Step:
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
        causes.between(cause)
        scaler.step(optimizer)
        scaler.update()

    return step


def _pipe(causes: Causes) -> Step:
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
        causes.between(cause)
        optimizer.step()

    return step


_JOBS: dict[str, Callable[[Causes], Step]] = {
    "fsdp2": _fsdp2, "vit": _vit, "conv_fp16": _conv_fp16, "tp": _tp, "pipe": _pipe, "moe": _moe, "compiled": _compiled,
    "tiny": _tiny,
    "gan": large_images.gan, "diffusion": large_images.diffusion, "rnn": recurrent.rnn,
    "contrastive": large_texts.contrastive, "zero1": large_texts.zero1, "accumulate": large_texts.accumulate,
    "rollout": large_texts.rollout, "fsdp2_large": large_texts.fsdp2_large,
}  # fmt: skip
