"""Transformers whose devices bind: few operators, each of which takes long."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as exchanged
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from varied.disturbing import Causes, Step, read_norms
from varied.layers import CUDA, Injected

_DIM, _VOCABULARY, _TOKENS = (2048, 16384, 1024) if CUDA else (64, 128, 32)
_MICRO_BATCHES = 4
_PATCH, _EDGE, _PAIRS, _WORDS = (16, 256, 64, 64) if CUDA else (8, 32, 4, 8)
_WIDE, _NARROW, _SHARED = (1536, 1024, 512) if CUDA else (64, 32, 16)
_PROMPTS, _WINDOW, _GENERATED, _LONGER = (8, 256, 16, 20) if CUDA else (2, 16, 8, 10)


class WideLayer(nn.Module):
    """A transformer's layer; where it is to be slow, one product of it is in fp32 on the last rank."""

    def __init__(self, dim: int, causal: bool, slow: bool) -> None:
        super().__init__()
        self.heads, self.causal, self.slow = max(1, dim // 128), causal, slow
        self.first, self.second = nn.LayerNorm(dim, bias=False), nn.LayerNorm(dim, bias=False)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        _read_range(x)
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, -1)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2)
        x = x + self._projected(attended)
        _read_range(x)
        out: Tensor = x + self.down(functional.gelu(self.up(self.second(x))))
        return out

    def _projected(self, x: Tensor) -> Tensor:
        if self.slow and Injected.cause == "slow_one" and dist.get_rank() == dist.get_world_size() - 1:
            with torch.autocast(x.device.type, enabled=False):
                return functional.linear(x.float(), self.out.weight.float()).to(x.dtype)
        out: Tensor = self.out(x)
        return out


def _read_range(x: Tensor) -> None:
    if Injected.cause == "items":
        x.detach().amax().item()
        x.detach().amin().item()


class WideDecoder(nn.Module):
    """Tokens to the next ones' scores."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_VOCABULARY, _DIM)
        self.blocks = nn.ModuleList(WideLayer(_DIM, causal=True, slow=at == 0) for at in range(count))
        self.norm, self.head = nn.LayerNorm(_DIM, bias=False), nn.Linear(_DIM, _VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, last_only: bool = False) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(self.norm(x[:, -1:] if last_only else x))
        return out


class Tower(nn.Module):
    """A sequence to one direction in the shared space."""

    def __init__(self, dim: int, count: int, slow: bool = False) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(WideLayer(dim, causal=False, slow=slow and at == 0) for at in range(count)))
        self.head = nn.Linear(dim, _SHARED)

    def forward(self, x: Tensor) -> Tensor:
        return functional.normalize(self.head(self.blocks(x).mean(1)).float(), dim=-1)


class Towers(nn.Module):
    """Images and texts, each by a tower of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.words = nn.Conv2d(3, _WIDE, _PATCH, _PATCH), nn.Embedding(_VOCABULARY, _NARROW)
        self.seen, self.read = Tower(_WIDE, 5, slow=True), Tower(_NARROW, 3)

    def forward(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        return self.seen(self.patches(images).flatten(2).transpose(1, 2)), self.read(self.words(texts))


def _drawn(causes: Causes, rows: int, tokens: int = _TOKENS) -> Tensor:
    return torch.randint(_VOCABULARY, (rows, tokens), device=causes.device)


def _half(causes: Causes) -> torch.autocast:
    return torch.autocast(causes.device.type, torch.bfloat16)


def _loss(model: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
    scores = model(tokens)
    return functional.cross_entropy(scores[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


def _made(causes: Causes, make: Callable[[], nn.Module]) -> nn.Module:
    with causes.device:  # so many weights are drawn there in less time
        return make()


def _copied(causes: Causes, make: Callable[[], nn.Module]) -> DistributedDataParallel:
    return DistributedDataParallel(_made(causes, make), gradient_as_bucket_view=True)


def contrastive(causes: Causes) -> Step:
    """Return a step that compares each image with the texts of all ranks."""
    model = _copied(causes, Towers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=CUDA)
    images = torch.randn(_PAIRS, 3, _EDGE, _EDGE, device=causes.device)
    texts = _drawn(causes, _PAIRS, _WORDS)
    own = torch.arange(_PAIRS, device=causes.device) + dist.get_rank() * _PAIRS

    def step(cause: str | None) -> None:
        optimizer.zero_grad(set_to_none=True)
        with _half(causes):
            seen, read = model(images, texts)
        causes.between(cause)
        all_seen, all_read = (torch.cat(exchanged.all_gather(each)) for each in (seen, read))
        of_images = functional.cross_entropy(20 * seen @ all_read.T, own)
        (of_images + functional.cross_entropy(20 * read @ all_seen.T, own)).backward()
        optimizer.step()

    return step


def zero1(causes: Causes) -> Step:
    """Return a step behind which each rank broadcasts what it updated."""
    rows = 8 if CUDA else 4
    model = _copied(causes, lambda: WideDecoder(5))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-5, fused=CUDA)
    batch, larger = _drawn(causes, rows), _drawn(causes, rows + rows // 4)

    def step(cause: str | None) -> None:
        optimizer.zero_grad(set_to_none=True)
        with _half(causes):
            loss = _loss(model, larger if cause == "rows" and causes.last else batch)
        loss.backward()
        if cause == "norms":
            read_norms(model)
        causes.between(cause)
        optimizer.step()

    return step


def accumulate(causes: Causes) -> Step:
    """Return a step of several backward passes, the last of which exchanges gradients."""
    model = _copied(causes, lambda: WideDecoder(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=CUDA)
    batches = [_drawn(causes, 4 if CUDA else 2) for _ in range(_MICRO_BATCHES)]

    def step(cause: str | None) -> None:
        optimizer.zero_grad(set_to_none=True)
        for at, batch in enumerate(batches):
            exchanges = at == _MICRO_BATCHES - 1 or cause == "every_sync"
            with nullcontext() if exchanges else model.no_sync():
                with _half(causes):
                    loss = _loss(model, batch) / _MICRO_BATCHES
                loss.backward()
            if at == _MICRO_BATCHES // 2 - 1:
                causes.between(cause)
        optimizer.step()

    return step


def rollout(causes: Causes) -> Step:
    """Return a step that generates, token by token, and then trains on what it generated."""
    model = _copied(causes, lambda: WideDecoder(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=CUDA)
    prompts = _drawn(causes, _PROMPTS, _WINDOW)

    def generated(count: int) -> Tensor:
        window = prompts
        with torch.no_grad(), _half(causes):
            for _ in range(count):
                token = model.module(window, last_only=True)[:, -1].argmax(-1)
                if min(token.tolist()) >= 0:  # each is looked at: a stop would end it
                    window = torch.cat([window[:, 1:], token[:, None]], 1)
        return window

    def step(cause: str | None) -> None:
        window = generated(_LONGER if cause == "long_generation" and causes.last else _GENERATED)
        causes.between(cause)
        optimizer.zero_grad(set_to_none=True)
        with _half(causes):
            loss = _loss(model, window)
        loss.backward()
        if cause == "norms":
            read_norms(model)
        optimizer.step()

    return step


def fsdp2_large(causes: Causes) -> Step:
    """Return a step of sharded layers; beside it stands the model whose every product is a shard of its own."""
    count, rows = 12 if CUDA else 2, 6 if CUDA else 2
    batch = _drawn(causes, rows)
    by_block, by_product = (_sharded(causes, count, small) for small in (False, True))
    blocks = [block for block in by_block.blocks if isinstance(block, FSDPModule)]
    optimizers = {model: torch.optim.AdamW(model.parameters(), lr=1e-5, fused=CUDA) for model in (by_block, by_product)}

    def step(cause: str | None) -> None:
        model = by_product if cause == "small_shards" else by_block
        for block in blocks:  # one that is told to fetch itself, which is there, fetches none before its time
            block.set_modules_to_backward_prefetch([block] if cause == "no_prefetch" else [])
        optimizers[model].zero_grad(set_to_none=True)
        loss = _loss(model, batch)
        loss.backward()
        causes.between(cause)
        optimizers[model].step()

    return step


def _sharded(causes: Causes, count: int, by_product: bool) -> WideDecoder:
    with causes.device:
        model = WideDecoder(count)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        if by_product:
            for product in (inner for inner in block.children() if isinstance(inner, nn.Linear)):
                fully_shard(product, mp_policy=policy)
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    return model
