"""The layers of the varied jobs, in the sizes of this machine."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

CUDA = torch.cuda.is_available()
DIM, LAYERS, LENGTH, BATCH = (1536, 6, 1024, 6) if CUDA else (64, 2, 64, 2)
VOCABULARY = 2048 if CUDA else 128
CONV_WIDTH, CONV_EDGE, CONV_BATCH, CONV_LAYERS = (192, 56, 64, 8) if CUDA else (8, 16, 4, 3)


class Injected:
    """What layers do beyond their own: `cause` is set around a disturbed step."""

    cause: str | None = None


def _disturb(x: Tensor) -> None:
    if Injected.cause == "items":
        x.detach().flatten()[0].item()
    if Injected.cause == "syncs" and CUDA:
        torch.cuda.synchronize()


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5).to(x.dtype) * self.weight


class _Summed(torch.autograd.Function):
    """Partial results of all ranks, added up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


class _Copied(torch.autograd.Function):
    """One input of all ranks, whose gradients are added up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        gradient = gradients[0].contiguous()
        dist.all_reduce(gradient)
        return gradient


class Block(nn.Module):
    """A decoder's layer: attention and a gated product behind root-mean-square norms; `split` over so many ranks."""

    def __init__(self, causal: bool = True, split: int = 1) -> None:
        super().__init__()
        self.causal, self.split, self.heads = causal, split, 16 // split
        self.first, self.second = Norm(), Norm()
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM // split, bias=False), nn.Linear(DIM // split, DIM, bias=False)
        self.gate, self.up = (nn.Linear(DIM, 3 * DIM // split, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * DIM // split, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        _disturb(x)
        size, steps, _ = x.shape
        q, k, v = (
            part.reshape(size, steps, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self._copied(self.first(x))).chunk(3, -1)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self._summed(self.out(attended.transpose(1, 2).flatten(2)))
        normed = self._copied(self.second(x))
        return x + self._summed(self.down(functional.silu(self.gate(normed)) * self.up(normed)))

    def _copied(self, x: Tensor) -> Tensor:
        out: Tensor = _Copied.apply(x) if self.split > 1 else x  # type: ignore[no-untyped-call]
        return out

    def _summed(self, x: Tensor) -> Tensor:
        out: Tensor = _Summed.apply(x) if self.split > 1 else x  # type: ignore[no-untyped-call]
        return out


class Checkpointed(nn.Module):
    """A layer whose activations are computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Block(causal=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = checkpoint(self.inner, x, use_reentrant=False)
        return out


class _Exchanged(torch.autograd.Function):
    """Tokens to where their experts are, and their gradients back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sent: list[int], received: list[int]) -> Tensor:
        ctx.sizes = sent, received
        out = x.new_empty(sum(received), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        sent, received = ctx.sizes
        out = gradients[0].new_empty(sum(sent), gradients[0].shape[1])
        dist.all_to_all_single(out, gradients[0].contiguous(), sent, received)
        return out, None, None


class Experts(nn.Module):
    """An expert a rank, behind a fixed routing: even, or most of it to the last rank's."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = Norm(), nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        world, rank = dist.get_world_size(), dist.get_rank()
        tokens = self.norm(x).flatten(0, 1)
        even = len(tokens) // world
        moved = even * 3 // 4 if Injected.cause == "skew" else 0
        sent = [even - moved] * (world - 1) + [even + moved * (world - 1)]
        received = [sent[rank]] * world
        inside = _Exchanged.apply(tokens, sent, received)  # type: ignore[no-untyped-call]
        back: Tensor = _Exchanged.apply(  # type: ignore[no-untyped-call]
            self.down(functional.gelu(self.up(inside))), received, sent
        )
        return x + back.view_as(x)


class Decoder(nn.Module):
    def __init__(self, make_block: Callable[[], nn.Module], count: int = LAYERS) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(make_block() for _ in range(count))
        self.head = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(x)
        return out


class Stage(nn.Module):
    """A pipeline's stage; where the last one is `uneven`, it has its last layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        if Injected.cause == "uneven" and dist.get_rank() == dist.get_world_size() - 1:
            x = self.blocks[-1](x)
        return x


class Mixer(nn.Module):
    """A layer that convolves in space, then over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.deep = nn.Conv2d(CONV_WIDTH, CONV_WIDTH, 7, padding=3, groups=CONV_WIDTH)
        self.norm, self.wide = nn.BatchNorm2d(CONV_WIDTH), nn.Conv2d(CONV_WIDTH, 4 * CONV_WIDTH, 1)
        self.narrow = nn.Conv2d(4 * CONV_WIDTH, CONV_WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        _disturb(x)
        out: Tensor = x + self.narrow(functional.gelu(self.wide(self.norm(self.deep(x)))))
        return out
