"""A U-Net on crops of files, behind a loader with workers, with one known cause a run: a job of own_loop.py.

Its hosts bind (`small`) or its devices do (`large`). Loading and copies to the device are those of most scripts.
"""

import gc
import multiprocessing
import time
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

#: What comes in every so many steps.
EVERY = {"checkpoint": 10, "collector": 4}
_CLASSES, _SIDE_OF_FILE, _FILES = 5, 1024, 6
_OBJECTS = 900_000


class Tiles(Dataset[tuple[Tensor, Tensor]]):
    """Random crops of files; each takes `pace.value` seconds more."""

    def __init__(self, folder: Path, side: int, rank: int) -> None:
        self.folder, self.side, self.rank = folder, side, rank
        self.pace = multiprocessing.Value("d", 0.0)
        if rank == 0:
            folder.mkdir(exist_ok=True)
            for at in range(_FILES):
                tile = np.random.default_rng(at).integers(0, _CLASSES, (4, _SIDE_OF_FILE, _SIDE_OF_FILE), np.uint8)
                np.save(folder / f"{at}.npy", tile)
        dist.barrier()

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        tile = np.load(self.folder / f"{index % _FILES}.npy", mmap_mode="r")
        chance = np.random.default_rng(7 * index + self.rank)
        top, left = chance.integers(0, _SIDE_OF_FILE - self.side, 2)
        crop = np.array(tile[:, top : top + self.side, left : left + self.side])
        crop = np.ascontiguousarray(crop[:, :, ::-1] if chance.random() < 0.5 else crop)
        if self.pace.value:
            time.sleep(self.pace.value)
        return torch.from_numpy(crop[:3]).float() / _CLASSES, torch.from_numpy(crop[3].astype(np.int64))


class Stage(nn.Module):
    """Two convolutions behind norms; where `exchanges` says so, what a norm would need of all ranks is exchanged."""

    def __init__(self, inputs: int, outputs: int, exchanges: list[bool]) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(2))
        self.exchanges = exchanges

    def forward(self, x: Tensor) -> Tensor:
        for convolution, norm in zip((self.first, self.second), self.norms, strict=True):
            x = convolution(x)
            if self.exchanges[0]:
                both = torch.stack([x.float().mean((0, 2, 3)), x.float().pow(2).mean((0, 2, 3))]).detach()
                dist.all_reduce(both)
            x = functional.relu(norm(x))
        return x


class UNet(nn.Module):
    """Three scales with skip connections; `recomputes`, where its stages run again in the backward pass."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.exchanges, self.recomputes = [False], False
        widths = [width << at for at in range(4)]
        inputs = [3, *widths[:2]]
        self.down = nn.ModuleList(Stage(i, o, self.exchanges) for i, o in zip(inputs, widths[:3], strict=True))
        self.middle = Stage(widths[2], widths[3], self.exchanges)
        self.wider = nn.ModuleList(nn.ConvTranspose2d(widths[at + 1], widths[at], 2, 2) for at in (2, 1, 0))
        self.up = nn.ModuleList(Stage(2 * widths[at], widths[at], self.exchanges) for at in (2, 1, 0))
        self.out = nn.Conv2d(width, _CLASSES, 1)
        self.features = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for stage in self.down:
            x = self._run(stage, x)
            kept.append(x)
            x = functional.max_pool2d(x, 2)
        x = self._run(self.middle, x)
        for wider, stage, skip in zip(self.wider, self.up, reversed(kept), strict=True):
            x = self._run(stage, torch.cat([wider(x), skip], 1))
        self.features = x.detach()
        scores: Tensor = self.out(x)
        return scores

    def _run(self, stage: nn.Module, x: Tensor) -> Tensor:
        found: Tensor = checkpoint(stage, x, use_reentrant=False) if self.recomputes else stage(x)
        return found


class Unet:
    """The job of one rank, as own_loop.py runs it."""

    def __init__(self, size: str, device: torch.device, causes: list[str]) -> None:
        cuda = device.type == "cuda"
        self.device, self.rank = device, dist.get_rank()
        side, width, self.batch = {
            ("small", True): (96, 24, 4), ("large", True): (256, 64, 16),
            ("small", False): (32, 8, 2), ("large", False): (64, 8, 4),
        }[size, cuda]  # fmt: skip
        self.stall_s, self.slow_s = (0.006, 0.0035) if cuda else (0.03, 0.03)
        self.tiles = Tiles(Path("tiles").resolve(), side, self.rank)
        self.plain = UNet(width).to(device)
        devices = [device.index] if cuda else None
        self.model = DistributedDataParallel(self.plain, device_ids=devices)
        wanted = "small_buckets" in causes  # a second reducer costs each backward pass of all causes
        self.bucketed = DistributedDataParallel(self.plain, device_ids=devices, bucket_cap_mb=0.1) if wanted else None
        self.optimizer = torch.optim.AdamW(self.plain.parameters(), lr=1e-3, fused=cuda)
        self.head = nn.Sequential(Stage(width, 2 * width, [False]), nn.Conv2d(2 * width, _CLASSES, 1)).to(device)
        self.averages = [parameter.detach().clone() for parameter in self.plain.parameters()]
        self.objects: list[list[int]] = []
        self.cause = "none"

    def begin(self, cause: str) -> None:
        self.cause = cause
        self.tiles.pace.value = 0.0
        self.objects = [[at] for at in range(_OBJECTS)] if cause == "collector" and self.rank == 0 else []
        gc.collect()
        (gc.disable if cause == "collector" else gc.enable)()
        self.batches = iter(
            DataLoader(self.tiles, self.batch, num_workers=2, pin_memory=self.device.type == "cuda", drop_last=True)
        )

    def train(self, step: int, disturbed: bool) -> Tensor:
        cause = self.cause if disturbed else "none"
        self.tiles.pace.value = self.slow_s if cause == "slow_workers" else 0.0
        self.plain.exchanges[0], self.plain.recomputes = cause == "statistics", cause == "recompute"
        images, labels = (one.to(self.device, non_blocking=True) for one in next(self.batches))
        if cause == "rows" and self.rank == 1:
            more = max(1, self.batch // 4)
            images, labels = torch.cat([images, images[:more]]), torch.cat([labels, labels[:more]])
        if cause == "preview":
            self._preview(images)
        model = self.bucketed if cause == "small_buckets" and self.bucketed is not None else self.model
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            scores = model(images)
            loss = self._loss(scores, labels, torch.float64 if cause == "double" and self.rank == 1 else torch.float32)
            if cause == "own" and self.rank == 1:
                self.head(self.plain.features).mean()
        loss.backward()
        if cause == "items":
            for parameter in self.plain.parameters():
                assert parameter.grad is not None
                parameter.grad.norm().item()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._after(cause, step, scores.detach(), labels)
        return loss.detach()

    def _loss(self, scores: Tensor, labels: Tensor, dtype: torch.dtype) -> Tensor:
        scores = scores.to(dtype)
        shares = scores.softmax(1)
        of_class = functional.one_hot(labels, _CLASSES).permute(0, 3, 1, 2).to(dtype)
        overlap = 2 * (shares * of_class).sum((0, 2, 3)) / ((shares + of_class).sum((0, 2, 3)) + 1e-6)
        return functional.cross_entropy(scores, labels) + 1 - overlap.mean()

    def _preview(self, images: Tensor) -> None:
        dist.barrier()
        if self.rank == 0:
            first = (images[0].float().cpu().numpy() * 50).astype(np.uint8)
            zlib.compress(first.repeat(3, 1).repeat(3, 2).tobytes(), 6)

    def _after(self, cause: str, step: int, scores: Tensor, labels: Tensor) -> None:
        if cause == "average":
            for average, parameter in zip(self.averages, self.plain.parameters(), strict=True):
                average.mul_(0.999).add_(parameter.detach(), alpha=0.001)
        if cause == "gather":
            everybody = [torch.empty_like(scores) for _ in range(dist.get_world_size())]
            dist.all_gather(everybody, scores.contiguous())
            (torch.stack(everybody).argmax(2) == 0).float().mean().item()
        if cause == "metric" and self.rank == 0:
            (scores.argmax(1).cpu().numpy() == labels.cpu().numpy()).mean()
        if cause == "checkpoint" and step % EVERY["checkpoint"] == EVERY["checkpoint"] - 1:
            if self.rank == 0:
                torch.save({"model": self.plain.state_dict(), "optimizer": self.optimizer.state_dict()}, "state.pt")
            dist.barrier()
        if cause == "collector" and self.rank == 0 and step % EVERY["collector"] == 0:
            gc.collect()
        if cause == "sleep_one" and self.rank == 1:
            time.sleep(self.stall_s)
