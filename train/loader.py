"""Brings batches to the device ahead of the steps that read them; the host's time for it is annotated in traces."""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor
from torch.profiler import record_function
from torch.utils.data import DataLoader

from launch.job import Job
from train.config import GptConfig, TrainConfig
from train.corpus import read_corpus
from train.data import Batch, HeldOutBatches, Share, TokenBatches, split_tokens, synthetic_batch
from train.validation import HeldOut

ANNOTATION = "scalescope:data"  # what the reading half counts as the host loading data


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
        self._host: Iterator[Tensor] = iter(
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


Loader = SyntheticLoader | TokenLoader


def open_loader(job: Job[TrainConfig], share: Share, first_step: int = 0) -> tuple[Loader, HeldOut]:
    """Return what feeds this rank's steps, and what measures the loss on the data held out from them."""
    config = job.config
    if config.data.kind == "synthetic":
        return SyntheticLoader(synthetic_batch(config.model, share, config.seed, job.device)), HeldOut(job, None)
    model = cast(GptConfig, config.model)
    corpus = read_corpus(config.data)
    batches = TokenBatches(corpus, model, share, config.seed)
    loader = TokenLoader(batches, first_step, config.steps, config.data.workers, job.device)
    return loader, HeldOut(job, HeldOutBatches(corpus, model, share, config.data.validation_samples))
