"""A transformer that tags each word of a sentence, with one habit of its author a run: a job of own_loop.py.

What its author wrote by hand has an operator of torch's own, or is not needed: nothing of it is a rank's fault.
"""

import gc
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

_WORDS, _TAGS, _EPS = 8000, 24, 1e-5
_LR, _FIRST, _SECOND, _DECAY, _KEPT = 1e-3, 0.9, 0.999, 0.01, 0.999
_READ, _COUNTED = 96, 8


class Habits:
    """What a step's modules look up: which habit they follow."""

    norm_by_hand = False
    norm_in_double = False


class Norm(nn.Module):
    """A layer norm: torch's own, or written out, in float32 or, by a NumPy constant that slipped in, in float64."""

    def __init__(self, width: int, habits: Habits) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.width, self.habits = width, habits

    def forward(self, x: Tensor) -> Tensor:
        if self.habits.norm_by_hand:
            mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
            return (x - mean) / torch.sqrt(variance + _EPS) * self.weight + self.bias
        if self.habits.norm_in_double:
            wide = functional.layer_norm(x.double(), (self.width,), self.weight.double(), self.bias.double(), _EPS)
            return wide.to(x.dtype)
        return functional.layer_norm(x, (self.width,), self.weight, self.bias, _EPS)


class Block(nn.Module):
    """Attention and a feed-forward part, each behind a norm."""

    def __init__(self, width: int, heads: int, habits: Habits) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = Norm(width, habits), Norm(width, habits)
        self.projected, self.merged = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        sentences, words, width = x.shape
        split = self.projected(self.before(x)).view(sentences, words, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(x.shape)
        x = x + self.merged(seen)
        out: Tensor = x + self.narrow(functional.gelu(self.wide(self.between(x))))
        return out


class Tagger(nn.Module):
    """Embeds, encodes, and scores each word's tags."""

    def __init__(self, width: int, layers: int, habits: Habits) -> None:
        super().__init__()
        self.embedded = nn.Embedding(_WORDS, width)
        self.blocks = nn.ModuleList(Block(width, width // 64 or 1, habits) for _ in range(layers))
        self.last, self.scored = Norm(width, habits), nn.Linear(width, _TAGS)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embedded(words)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.scored(self.last(x))
        return scores


class TaggerJob:
    """The job of one rank, as own_loop.py runs it."""

    def __init__(self, size: str, device: torch.device, _: list[str]) -> None:
        cuda = device.type == "cuda"
        self.device, self.rank = device, dist.get_rank()
        width, layers, self.batch, self.words = {
            ("small", True): (256, 6, 8, 64), ("large", True): (1024, 8, 64, 256),
            ("small", False): (64, 3, 4, 48), ("large", False): (128, 4, 8, 96),
        }[size, cuda]  # fmt: skip
        self.habits = Habits()
        self.plain = Tagger(width, layers, self.habits).to(device)
        self.model = DistributedDataParallel(self.plain, device_ids=[device.index] if cuda else None)
        self.parameters = list(self.plain.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=_LR, weight_decay=_DECAY, fused=True)
        self.by_single = torch.optim.AdamW(self.parameters, lr=_LR, weight_decay=_DECAY, foreach=False, fused=False)
        self.moments = [(torch.zeros_like(one), torch.zeros_like(one)) for one in self.parameters]
        self.averages = [one.detach().clone() for one in self.parameters]
        chance = torch.Generator().manual_seed(self.rank)
        shape = (self.batch, self.words)
        self.resident = (
            torch.randint(0, _WORDS, shape, generator=chance).to(device),
            torch.randint(0, _TAGS, shape, generator=chance).to(device),
        )
        self.cause, self.updates = "none", 0
        self.counts = [[0.0] * _COUNTED for _ in range(_COUNTED)]

    def begin(self, cause: str) -> None:
        self.cause = cause
        gc.collect()

    def train(self, step: int, disturbed: bool) -> Tensor:
        cause = self.cause if disturbed else "none"
        self.habits.norm_by_hand, self.habits.norm_in_double = cause == "norm_by_hand", cause == "double"
        words, tags = self.resident
        bf16 = self.device.type == "cuda" and cause != "full_precision"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            if cause == "unused":
                self.plain(words.flip(1))
            scores = self.model(words)
            loss = functional.cross_entropy(scores.flatten(0, 1).float(), tags.flatten())
        loss.backward()
        if cause == "clip_by_hand":
            self._clip()
        if cause == "update_by_hand":
            self._update()
        else:
            (self.by_single if cause == "single" else self.optimizer).step()
        self.optimizer.zero_grad()
        if cause == "average":
            with torch.no_grad():
                for average, parameter in zip(self.averages, self.parameters, strict=True):
                    average.copy_(_KEPT * average + (1 - _KEPT) * parameter)
        if cause == "decode":
            sum(self._decoded(scores.detach()))
        if cause == "confusion":
            best = scores.detach().argmax(2)
            for tag in range(_COUNTED):
                for told in range(_COUNTED):
                    self.counts[tag][told] += ((tags == tag) & (best == told)).sum().item()
        return loss.detach()

    def _clip(self) -> None:
        total = sum(float(one.grad.norm()) ** 2 for one in self.parameters if one.grad is not None) ** 0.5
        for one in self.parameters:
            if one.grad is not None and total > 1:
                one.grad.mul_(1 / total)

    @torch.no_grad()
    def _update(self) -> None:
        self.updates += 1
        for one, (first, second) in zip(self.parameters, self.moments, strict=True):
            assert one.grad is not None
            first.copy_(_FIRST * first + (1 - _FIRST) * one.grad)
            second.copy_(_SECOND * second + (1 - _SECOND) * one.grad**2)
            mean, spread = first / (1 - _FIRST**self.updates), second / (1 - _SECOND**self.updates)
            one.copy_(one - _LR * (mean / (spread.sqrt() + 1e-8) + _DECAY * one))

    def _decoded(self, scores: Tensor) -> Iterator[int]:
        """Yield the best tag of some words, read one by one, as decoders in scripts do."""
        for at in range(_READ):
            yield int(scores[at % self.batch, at // self.batch].argmax().item())
