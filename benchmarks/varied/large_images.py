"""Jobs on images whose devices bind: few operators, each of which takes long."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

from varied.disturbing import Causes, Step, read_norms
from varied.layers import CUDA, Injected

_NOISE, _GAN_WIDTH, _GAN_BATCH = (128, 128, 128) if CUDA else (8, 4, 4)
_WIDTH, _EDGE, _IMAGES = (128, 128, 32) if CUDA else (8, 16, 2)
_WORKERS, _SLOWER_S = 2, 0.008
_DECAY = 0.999


class ShiftedConv(nn.Conv2d):
    """A 3 by 3 convolution, in fp32 on a rank that is to be slow."""

    def __init__(self, inside: int, outside: int, slow: bool = False) -> None:
        super().__init__(inside, outside, 3, padding=1)
        self.slow = slow

    def forward(self, x: Tensor) -> Tensor:
        if not (self.slow and Injected.cause == "slow_one" and dist.get_rank() == dist.get_world_size() - 1):
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.float())


def _last(x: nn.Module, causes: Causes) -> nn.Module:
    out: nn.Module = x.to(causes.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return out


class Generator(nn.Module):
    """Noise to images of eight times the first edge."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(_NOISE, 4 * _GAN_WIDTH * 64)
        layers: list[nn.Module] = []
        for inside, outside in ((4, 4), (4, 2), (2, 2)):
            layers += [nn.ConvTranspose2d(inside * _GAN_WIDTH, outside * _GAN_WIDTH, 4, 2, 1, bias=False)]
            layers += [nn.BatchNorm2d(outside * _GAN_WIDTH), nn.ReLU(inplace=True)]
        layers += [ShiftedConv(2 * _GAN_WIDTH, 2 * _GAN_WIDTH, slow=True), nn.ReLU(inplace=True)]
        self.rest = nn.Sequential(*layers, nn.Conv2d(2 * _GAN_WIDTH, 3, 3, padding=1), nn.Tanh())

    def forward(self, noise: Tensor) -> Tensor:
        x = self.first(noise).view(-1, 4 * _GAN_WIDTH, 8, 8).contiguous(memory_format=torch.channels_last)
        out: Tensor = self.rest(x)
        return out


class Discriminator(nn.Module):
    """Images to how true they look."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inside = 3
        for outside in (_GAN_WIDTH, 2 * _GAN_WIDTH, 4 * _GAN_WIDTH):
            layers += [nn.Conv2d(inside, outside, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True)]
            layers += [nn.Conv2d(outside, outside, 3, padding=1), nn.LeakyReLU(0.2, inplace=True)]
            inside = outside
        self.rest = nn.Sequential(*layers, nn.Flatten(), nn.Linear(inside * 64, 1))

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.rest(images)
        return out


def gan(causes: Causes) -> Step:
    """Return a step that updates two models by turns."""
    generator = DistributedDataParallel(_last(Generator(), causes))
    discriminator = DistributedDataParallel(_last(Discriminator(), causes))
    of_generator, of_discriminator = (
        torch.optim.Adam(model.parameters(), lr=1e-5, betas=(0.5, 0.999), fused=CUDA)
        for model in (generator, discriminator)
    )
    true = torch.randn(_GAN_BATCH, 3, 64, 64, device=causes.device).to(memory_format=torch.channels_last)

    def made() -> Tensor:
        out: Tensor = generator(torch.randn(_GAN_BATCH, _NOISE, device=causes.device))
        return out

    def step(cause: str | None) -> None:
        discriminator.requires_grad_(True)
        of_discriminator.zero_grad(set_to_none=True)
        with torch.autocast(causes.device.type, torch.bfloat16):
            with torch.no_grad():
                false = made()
            looks_true, looks_false = discriminator(torch.cat([true, false])).float().chunk(2)
            loss = functional.softplus(-looks_true).mean() + functional.softplus(looks_false).mean()
        loss.backward()
        if cause == "items":
            read_norms(discriminator)
        of_discriminator.step()
        causes.between(cause)
        discriminator.requires_grad_(False)  # its gradients are nobody's now
        of_generator.zero_grad(set_to_none=True)
        with torch.autocast(causes.device.type, torch.bfloat16):
            loss = functional.softplus(-discriminator.module(made()).float()).mean()
        loss.backward()
        if cause == "items":
            read_norms(generator)
        of_generator.step()

    return step


class Conditioned(nn.Module):
    """Two convolutions behind norms, told the time, and what goes past them."""

    def __init__(self, inside: int, outside: int, slow: bool = False) -> None:
        super().__init__()
        self.first_norm, self.first = nn.GroupNorm(4, inside), ShiftedConv(inside, outside, slow)
        self.second_norm, self.second = nn.GroupNorm(4, outside), ShiftedConv(outside, outside, slow)
        self.time = nn.Linear(_WIDTH, outside)
        self.past = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        inner = self.first(functional.silu(self.first_norm(x))) + self.time(time)[:, :, None, None]
        out: Tensor = self.past(x) + self.second(functional.silu(self.second_norm(inner)))
        return out


class Denoiser(nn.Module):
    """A U-Net of three scales."""

    def __init__(self) -> None:
        super().__init__()
        w = _WIDTH
        self.time = nn.Sequential(nn.Linear(1, w), nn.SiLU(), nn.Linear(w, w))
        self.first, self.last = nn.Conv2d(3, w, 3, padding=1), nn.Conv2d(w, 3, 3, padding=1)
        self.downs = nn.ModuleList([Conditioned(w, w, slow=True), Conditioned(w, 2 * w), Conditioned(2 * w, 4 * w)])
        self.middle = Conditioned(4 * w, 4 * w)
        self.ups = nn.ModuleList([Conditioned(8 * w, 2 * w), Conditioned(4 * w, w), Conditioned(2 * w, w)])

    def forward(self, x: Tensor, when: Tensor) -> Tensor:
        time, x, kept = self.time(when[:, None]), self.first(x), []
        for at, down in enumerate(self.downs):
            x = down(functional.avg_pool2d(x, 2) if at else x, time)
            kept.append(x)
        x = self.middle(x, time)
        for at, up in enumerate(self.ups):
            x = functional.interpolate(x, scale_factor=2.0) if at else x
            x = up(torch.cat([x, kept.pop()], 1), time)
        out: Tensor = self.last(x)
        return out


class RawImages(IterableDataset[Tensor]):
    """Batches of raw images without end; each worker makes one in `pace_s`, which may change as it goes on."""

    def __init__(self, edge: int) -> None:
        self.edge = edge
        self.pace_s = torch.zeros(1, dtype=torch.float64).share_memory_()

    def __iter__(self) -> Iterator[Tensor]:
        raw = torch.randint(256, (_IMAGES, 3, self.edge, self.edge), dtype=torch.uint8)
        while True:
            until = time.perf_counter() + self.pace_s.item()
            batch = raw.clone()
            time.sleep(max(0.0, until - time.perf_counter()))
            yield batch


def diffusion(causes: Causes) -> Step:
    """Return a step that removes noise of images that a loader's workers make."""
    model = DistributedDataParallel(_last(Denoiser(), causes), gradient_as_bucket_view=True)
    averaged = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=CUDA)
    # What workers have made lies in shared memory: half a GiB of it, where there is so much.
    roomy = CUDA and Path("/dev/shm").is_dir() and shutil.disk_usage("/dev/shm").free > 2 << 30
    images = RawImages(_EDGE * 4 if roomy else _EDGE)
    shared: dict[str, Any] = {"batch_size": None, "num_workers": _WORKERS, "prefetch_factor": 1}
    pinned = iter(DataLoader(images, pin_memory=CUDA, **shared))
    pageable = iter(DataLoader(images, **shared))

    def step(cause: str | None) -> None:
        images.pace_s[0] = slow_s if cause == "slow_workers" else 0.0
        loader, waits = (pageable, True) if cause == "no_pin" else (pinned, False)
        raw = next(loader).to(causes.device, non_blocking=not waits)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(causes.device.type, torch.bfloat16):
            clean = raw.to(memory_format=torch.channels_last).to(torch.bfloat16) / 127.5 - 1
            clean = functional.avg_pool2d(clean, images.edge // _EDGE)
            noise, when = torch.randn_like(clean), torch.rand(_IMAGES, device=causes.device)
            kept = when.to(clean.dtype)[:, None, None, None]
            predicted = model(kept.sqrt() * clean + (1 - kept).sqrt() * noise, when)
            loss = functional.mse_loss(predicted.float(), noise.float())
        loss.backward()
        if cause == "items":
            read_norms(model)
        causes.between(cause)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(averaged, list(model.parameters()), 1 - _DECAY)

    slow_s = 0.0
    slow_s = _WORKERS * (_agreed_s(step, causes) + _SLOWER_S)
    return step


def _agreed_s(step: Step, causes: Causes, times: int = 4) -> float:
    """Return how long an undisturbed step takes on the slowest rank, s."""
    for _ in range(3):
        step(None)
    _finish()
    since = time.perf_counter()
    for _ in range(times):
        step(None)
    _finish()
    taken = torch.tensor([(time.perf_counter() - since) / times], device=causes.device)
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return taken.item()


def _finish() -> None:
    if CUDA:
        torch.cuda.synchronize()
