"""A small network that normalises in many ways, traced once for each: OUT/CASE.

torchrun --standalone --nproc-per-node 2 -m tests.normalised_job OUT CASE …   (tests/data/normalised was made so)
"""

from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.small_traces import record_cases, record_steps

STEPS, BATCH, CHANNELS, SIDE, GROUPS, LAYERS, EPS = 5, 8, 32, 48, 4, 4, 1e-5


class Norm(nn.Module):
    """Normalises images in one of several ways."""

    def __init__(self, case: str) -> None:
        super().__init__()
        self.by = {
            "group": self._group, "layer": self._layer, "fused": self._at_once, "batch": self._batch,
            "again": self._group, "exchanged": self._exchanged, "root": self._root, "weights": self._plain,
            "unscaled": self._unscaled, "modulated": self._modulated,
        }.get(case, self._built_in)  # fmt: skip
        self.weight, self.bias = nn.Parameter(torch.ones(CHANNELS)), nn.Parameter(torch.zeros(CHANNELS))
        if case in ("unscaled", "modulated"):
            self.weight.requires_grad_(False), self.bias.requires_grad_(False)
        self.modulated = nn.Linear(CHANNELS, 2 * CHANNELS) if case == "modulated" else None
        self.mean, self.variance = torch.zeros(1, CHANNELS, 1, 1), torch.ones(1, CHANNELS, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.by(x)

    def _affine(self, x: Tensor) -> Tensor:
        return x * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)

    def _plain(self, x: Tensor) -> Tensor:
        return self._affine(x)

    def _built_in(self, x: Tensor) -> Tensor:
        return F.group_norm(x, GROUPS, self.weight, self.bias, EPS)

    def _group(self, x: Tensor) -> Tensor:
        groups = x.reshape(len(x), GROUPS, CHANNELS // GROUPS, *x.shape[2:])
        apart = groups - groups.mean((2, 3, 4), keepdim=True)
        variance = (apart * apart).mean((2, 3, 4), keepdim=True)
        return self._affine((apart / torch.sqrt(variance + EPS)).reshape(x.shape))

    def _layer(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        mean, deviation = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return (self.weight * (x - mean) / (deviation + EPS) + self.bias).permute(0, 3, 1, 2)

    def _unscaled(self, x: Tensor) -> Tensor:
        """LayerNorm without a weight or a bias."""
        return (x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, keepdim=True, unbiased=False) + EPS)

    def _modulated(self, x: Tensor) -> Tensor:
        """The same, scaled and shifted by what another layer makes."""
        assert self.modulated is not None
        made: Tensor = self.modulated(x.mean((2, 3)))
        scale, shift = made.view(len(x), -1, 1, 1).chunk(2, 1)
        return self._unscaled(x) * (1 + scale) + shift

    def _at_once(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        variance, mean = torch.var_mean(tokens, -1, keepdim=True, unbiased=False)
        normed = (tokens - mean) * torch.rsqrt(variance.clamp(min=EPS))
        return torch.addcmul(self.bias, normed, self.weight).transpose(1, 2).reshape(x.shape)

    def _batch(self, x: Tensor) -> Tensor:
        mean = x.mean((0, 2, 3), keepdim=True)
        variance = ((x - mean) ** 2).mean((0, 2, 3), keepdim=True)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * mean)
            self.variance.lerp_(variance, 0.1)
        return self._affine((x - mean) / torch.sqrt(variance + EPS))

    def _exchanged(self, x: Tensor) -> Tensor:
        mean = all_reduce(x.mean((0, 2, 3), keepdim=True)) / dist.get_world_size()
        variance = all_reduce(((x - mean) ** 2).mean((0, 2, 3), keepdim=True)) / dist.get_world_size()
        return self._affine((x - mean) / torch.sqrt(variance + EPS))

    def _root(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + EPS) * self.weight.view(1, -1, 1, 1) + self.bias.view(
            1, -1, 1, 1
        )


class Layer(nn.Module):
    """A convolution, whose weights may be standardised, and a norm."""

    def __init__(self, case: str) -> None:
        super().__init__()
        self.standardised, self.again = case == "weights", case == "again"
        self.convolution, self.norm = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), Norm(case)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = checkpoint(self._run, x, use_reentrant=False) if self.again else self._run(x)
        return out

    def _run(self, x: Tensor) -> Tensor:
        weight = self.convolution.weight
        if self.standardised:
            apart = weight - weight.mean((1, 2, 3), keepdim=True)
            weight = apart / torch.sqrt(apart.var((1, 2, 3), keepdim=True) + EPS)
        return F.relu(self.norm(F.conv2d(x, weight, self.convolution.bias, padding=1)))


def standardised(x: Tensor) -> Tensor:
    return (x - x.mean((1, 2, 3), keepdim=True)) / torch.sqrt(x.var((1, 2, 3), keepdim=True) + EPS)


def compared(case: str, own: Tensor, other: Tensor, images: Tensor) -> Tensor:
    """Compare an output with another one, as losses do: nothing of it goes on into a layer."""
    if case == "pearson":
        apart, off = own - own.mean(), other - other.mean()
        return (apart * off).mean() / torch.sqrt(apart.square().mean() * off.square().mean() + EPS)
    if case == "masked":
        mask = (images > 0.3).float()
        count = 0.7 * mask.numel()
        mean = (own * mask).sum() / count
        spread = ((own - mean).square() * mask).sum() / count
        return ((own - mean) / torch.sqrt(spread + EPS) * mask + images).square().mean()
    return (standardised(own) - images).square().mean()


def by_hand(parameters: list[nn.Parameter], averages: list[Tensor], moments: list[tuple[Tensor, Tensor]]) -> None:
    """Clip gradients, step as Adam does, and average the weights, operator by operator."""
    with torch.no_grad():
        norm = torch.sqrt(sum((one.grad.pow(2).sum() for one in parameters if one.grad is not None), torch.zeros(())))
        for one, average, (first, second) in zip(parameters, averages, moments, strict=True):
            if one.grad is None:
                continue
            gradient = one.grad / (norm + 1e-6)
            gradient = (gradient - gradient.mean()) / (gradient.var() + EPS).sqrt() * 1e-3
            first.mul_(0.9).add_(0.1 * gradient)
            second.mul_(0.99).add_(0.01 * gradient * gradient)
            one.sub_(0.0 * first / (torch.sqrt(second) + 1e-8))
            average.copy_(0.999 * average + 0.001 * one)


def heads(case: str, net: nn.Module, images: Tensor) -> Tensor:
    """Return the loss of four outputs, each of a layer, and of one more layer behind them."""
    trunk = net(images)
    weights = [one for one in net.parameters() if one.dim() == 4]
    loss = torch.zeros(())
    for number, weight in enumerate(weights):
        loss = loss + 1 - compared(case, F.conv2d(trunk, weight, padding=1), trunk.flip(0), images + number)
    return loss + F.conv2d(trunk, weights[0], padding=1).square().mean()


def record(case: str, out: Path) -> None:
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(*(Layer(case) for _ in range(LAYERS))),
                                              broadcast_buffers=False)  # fmt: skip
    parameters = list(net.parameters())
    averages = [one.detach().clone() for one in parameters]
    moments = [(torch.zeros_like(one), torch.zeros_like(one)) for one in parameters]

    def step() -> None:
        images = torch.rand(BATCH, CHANNELS, SIDE, SIDE)
        if case == "others":  # four views, each standardised by itself
            images = sum((standardised(images + number) for number in range(4)), torch.zeros(()))
        if case in ("pearson", "masked", "standardised"):
            heads(case, net, images).backward()
            for one in parameters:
                one.grad = None
            return
        logits = net(images)
        if case != "others":
            logits.square().mean().backward()
            for one in parameters:
                one.grad = None
            return
        weights = torch.exp(logits - logits.amax(1, keepdim=True))
        shares = weights / weights.sum(1, keepdim=True)  # softmax
        loss = -(shares + EPS).log().mean()
        for number in range(2):  # no layer's, though it is as long
            loss = loss + standardised(logits + number).mean()
        with torch.no_grad():
            for number in range(4):
                standardised(logits + number).mul(2.0).add(1.0)
        loss.backward()
        by_hand(parameters, averages, moments)
        for one in parameters:
            one.grad = None

    traced(step, out / case)


def traced(step: Callable[[], None], out: Path) -> None:
    for _ in range(3):
        step()
    dist.barrier()
    record_steps(out / f"rank{dist.get_rank()}.json", step, STEPS)


if __name__ == "__main__":
    record_cases(record)
