"""Two small models, of nothing but torch, so that the cases also run where the project is not installed."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Hook = Callable[[], None]


class PausableModel(nn.Module):
    """A model with a place in the middle of its backward pass where something can be called."""

    in_backward: Hook | None = None

    def pausable(self, x: Tensor) -> Tensor:
        """Return x; where somebody wants to be called, that happens when x's gradient is there."""
        hook = self.in_backward
        if hook is not None and x.requires_grad:
            x.register_hook(lambda gradient: hook())
        return x


class Block(nn.Module):
    """A transformer block of GPT-2's kind. B samples, T tokens, C width, H heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape  # (B, T, C)
        query, key, value = (
            part.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)  # (B, H, T, C/H)
            for part in self.qkv(self.norm_1(x)).split(width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        added: Tensor = self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))
        return x + added


class Gpt(PausableModel):
    """A GPT whose blocks run in `order`, so that one of them can run again."""

    def __init__(self, layers: int, width: int, heads: int, context: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.order = tuple(range(layers))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross entropy of targets (B, T)."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        middle = len(self.order) // 2
        for place, block in enumerate(self.order):
            x = self.blocks[block](x)
            if place + 1 == middle:
                x = self.pausable(x)
        logits = self.head(self.norm(x))  # (B, T, V)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.reshape(-1))


class Residual(nn.Module):
    """ResNet's basic block, optionally halving the image."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.conv_2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm_1, self.norm_2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm_2(self.conv_2(F.relu(self.norm_1(self.conv_1(x)))))
        return F.relu(y + self.shortcut(x))


class ConvNet(PausableModel):
    """A ResNet of basic blocks, eight of them at full size. Batch norm's running means stay each rank's own."""

    def __init__(self, channels: int, stages: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, 1, 1, bias=False)
        widths = [channels * 2**stage for stage in range(stages)]
        before = [channels, *widths[:-1]]
        self.blocks = nn.ModuleList(
            block
            for stage, (narrow, wide) in enumerate(zip(before, widths, strict=True))
            for block in (Residual(narrow, wide, 1 if stage == 0 else 2), Residual(wide, wide, 1))
        )
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross entropy; images (B, 3, side, side), targets (B,)."""
        x = self.stem(images)
        for place, block in enumerate(self.blocks):
            x = block(x)
            if place + 1 == len(self.blocks) // 2:
                x = self.pausable(x)
        return F.cross_entropy(self.head(x.mean(dim=(2, 3))).float(), targets)
