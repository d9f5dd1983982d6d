"""How a step gets its batch, and how that becomes slow on purpose."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.profiler import record_function
from torch.utils.data import DataLoader, IterableDataset

from causes.cases import BARE, FETCH, LOADER, RESIDENT, WORKER

Batch = tuple[Tensor, Tensor]


class SameBatch(IterableDataset[Batch]):
    """Gives one batch over and over; each time it takes `delay_s`, which other processes can read."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self.batch = batch
        self.delay_s = multiprocessing.get_context("fork").Value("d", 0.0)

    def __iter__(self) -> Iterator[Batch]:
        while True:
            yield self.read()

    def read(self) -> Batch:
        """Return the batch, after the delay."""
        if self.delay_s.value > 0:
            time.sleep(self.delay_s.value)
        return self.batch


class Loading:
    """One way to get batches; all but RESIDENT copy them to the device each step."""

    def __init__(self, way: str, resident: Batch) -> None:
        self.way, self.resident = way, resident
        self.device = resident[0].device
        self.data = SameBatch(on_host(resident, pinned=way != WORKER)) if way != RESIDENT else None
        self.iterator: Iterator[Batch] | None = None
        if self.data is not None and way in (LOADER, WORKER):
            context = "fork" if way == WORKER else None
            # batches come as they are: no collating
            loader = DataLoader(self.data, None, num_workers=int(way == WORKER), multiprocessing_context=context)
            self.iterator = iter(loader)

    def slow_down(self, delay_ms: float) -> None:
        """Make each batch take so much longer."""
        if self.data is None:
            raise ValueError("a resident batch is not loaded, so its loading cannot be slow")
        self.data.delay_s.value = delay_ms / 1e3

    def fetch(self) -> Batch:
        """Return the next batch on the device."""
        if self.data is None:
            return self.resident
        if self.iterator is not None:
            inputs, targets = next(self.iterator)
        else:
            assert self.way in (FETCH, BARE)
            with record_function("fetch_batch") if self.way == FETCH else nullcontext():
                inputs, targets = self.data.read()
        return inputs.to(self.device, non_blocking=True), targets.to(self.device, non_blocking=True)

    def close(self) -> None:
        """End the worker, if there is one."""
        self.iterator = None


def on_host(batch: Batch, pinned: bool) -> Batch:
    """Return a copy in the host's memory, from where a device can fetch it by itself if it is pinned."""
    inputs, targets = batch[0].cpu(), batch[1].cpu()
    return (inputs.pin_memory(), targets.pin_memory()) if pinned and batch[0].is_cuda else (inputs, targets)


def random_batch(shape: "BatchShape", device: torch.device) -> Batch:
    """Return inputs and targets of a kind, the same for every call."""
    generator = torch.Generator().manual_seed(7)
    if shape.side:
        images = torch.randn(shape.samples, 3, shape.side, shape.side, generator=generator)
        targets = torch.randint(shape.classes, (shape.samples,), generator=generator)
        return images.to(device, memory_format=torch.channels_last), targets.to(device)
    tokens = torch.randint(shape.classes, (shape.samples, shape.tokens), generator=generator)
    return tokens.to(device), tokens.roll(-1, 1).to(device)


class BatchShape:
    """How big a batch is: tokens of a text, or images with a side."""

    def __init__(self, samples: int, classes: int, tokens: int = 0, side: int = 0) -> None:
        self.samples, self.classes, self.tokens, self.side = samples, classes, tokens, side
