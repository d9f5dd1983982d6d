"""Brings batches to the device ahead of the steps that read them; the host's time for it is annotated in traces."""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor
from torch.profiler import record_function
from torch.utils.data import DataLoader

from scalescope.launch.job import Job
from scalescope.train.config import TrainConfig
from scalescope.train.data.corpus import read_corpus
from scalescope.train.data.decoder_choice import choose_decoder, image_workers
from scalescope.train.data.image_batches import HeldOutImages, ImageBatches
from scalescope.train.data.image_loader import DeviceBatches, DeviceImageLoader, HostBatches, HostImageLoader, begun
from scalescope.train.data.images import read_image_folder
from scalescope.train.data.samples import (
    ANNOTATION,
    Batch,
    HeldOutBatches,
    Share,
    TokenBatches,
    split_tokens,
    synthetic_batch,
)
from scalescope.train.models.config import ImageModelConfig, TextModelConfig
from scalescope.train.validation import HeldOutLoss


class SyntheticLoader:
    """The same batch, already on the device, for every step."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def next(self) -> Batch:
        with record_function(ANNOTATION):
            return self._batch


class TokenLoader:
    """Batches from step `first_step` on; on a GPU the next one travels while the current step computes.

    The copy runs on a stream of its own from pinned memory, so neither host nor compute stream waits for it.
    """

    def __init__(self, batches: TokenBatches, first_step: int, steps: int, workers: int, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._host: Iterator[Tensor] = begun(
            DataLoader(
                batches,
                batch_size=None,
                sampler=range(first_step, steps),
                num_workers=workers,
                pin_memory=on_gpu,
            )
        )
        self._device = device
        self._stream = torch.cuda.Stream(device) if on_gpu else None
        self._ahead: Tensor | None = None
        if self._stream is not None:
            self._fetch_ahead(self._stream)

    def next(self) -> Batch:
        """Return this step's inputs and targets. Raises StopIteration after the last step."""
        with record_function(ANNOTATION):
            if self._stream is None:
                return split_tokens(next(self._host))
            if self._ahead is None:
                raise StopIteration
            compute = torch.cuda.current_stream(self._device)
            compute.wait_stream(self._stream)
            rows = self._ahead
            rows.record_stream(compute)
            self._fetch_ahead(self._stream)
            return split_tokens(rows)

    def _fetch_ahead(self, stream: torch.cuda.Stream) -> None:
        rows = next(self._host, None)
        with torch.cuda.stream(stream):
            self._ahead = None if rows is None else rows.to(self._device, non_blocking=True)


Loader = SyntheticLoader | TokenLoader | HostImageLoader | DeviceImageLoader


def open_loader(job: Job[TrainConfig], share: Share, first_step: int) -> tuple[Loader, HeldOutLoss]:
    """Return what feeds this rank's steps, and what measures the loss on the data held out from them."""
    config = job.config
    if config.data.kind == "synthetic":
        return SyntheticLoader(synthetic_batch(config.model, share, config.seed, job.device)), HeldOutLoss(job)
    if config.data.kind == "image_folder":
        return _open_images(job, share, range(first_step, config.steps))
    model = cast(TextModelConfig, config.model)
    corpus = read_corpus(config.data)
    batches = TokenBatches(corpus, model, share, config.seed)
    loader = TokenLoader(batches, first_step, config.steps, config.data.workers or 0, job.device)
    held_out = HeldOutBatches(corpus, model, share, config.data.validation_samples)
    return loader, HeldOutLoss(job, held_out, lambda rows: split_tokens(rows.to(job.device)))


def _open_images(job: Job[TrainConfig], share: Share, steps: range) -> tuple[Loader, HeldOutLoss]:
    data = job.config.data
    side = cast(ImageModelConfig, job.config.model).image_size
    folder = read_image_folder(data)
    decoder = choose_decoder(data.decoder, job.device.type)
    on_gpu = job.device.type == "cuda"
    skip = data.corrupt == "skip"
    batches = ImageBatches(folder.training, side, share, job.config.seed, decoder, skip)
    host = HostBatches(batches, steps, image_workers(data.workers, decoder, job.config.launch.threads_per_rank), on_gpu)
    make = DeviceBatches(side, job.device)
    loader = DeviceImageLoader(host, make, job.device) if on_gpu else HostImageLoader(host, make)
    return loader, HeldOutLoss(job, HeldOutImages(folder.held_out, side, share, data.validation_samples, skip), make)
