"""What a rank's steps are fed: the samples of its share of every global batch."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from scalescope.records.errors import UserError
from scalescope.records.steps.annotations import LOADING
from scalescope.train.data.corpus import Corpus, Tokens
from scalescope.train.data.windows import TokenWindows
from scalescope.train.models.config import ModelConfig, TextModelConfig
from scalescope.train.models.network import network_class

Batch = tuple[Tensor, Tensor]  # inputs and targets, on the device

ANNOTATION = LOADING  # what the reading half counts as the host loading data


@dataclass(frozen=True)
class Share:
    """Which samples of a global batch are this rank's. Numbered over the whole job, so no two ranks share one."""

    rank: int
    ranks: int
    samples: int  # of this rank, a step

    @property
    def global_samples(self) -> int:
        return self.samples * self.ranks

    def numbers(self, step: int) -> range:
        first = step * self.global_samples + self.rank * self.samples
        return range(first, first + self.samples)


class TokenBatches(Dataset[Tensor]):
    """A rank's batches of a token stream by step, on the host: (samples, context + 1) int64."""

    def __init__(self, corpus: Corpus, model: TextModelConfig, share: Share, seed: int) -> None:
        self._corpus = corpus
        self._model = model
        self._share = share
        self._windows = TokenWindows(len(corpus.training), model.context, seed)

    def __getitem__(self, step: int) -> Tensor:
        starts = [self._windows.start(number) for number in self._share.numbers(step)]
        return cut_windows(self._corpus.training, starts, self._model, self._corpus)


class HeldOutBatches:
    """A rank's part of the held-out samples, which are the same ones for every rank count that divides them.

    They lie evenly over the held-out stream. `len` counts batches; all ranks have equally many.
    """

    def __init__(self, corpus: Corpus, model: TextModelConfig, share: Share, samples: int) -> None:
        self._corpus = corpus
        self._model = model
        last = len(corpus.held_out) - model.context - 1
        everyone = [int(start) for start in np.linspace(0, last, samples).astype(np.int64)] if last >= 0 else []
        each = len(everyone) // share.ranks
        own = everyone[share.rank * each : (share.rank + 1) * each]
        self._batches = [own[first : first + share.samples] for first in range(0, len(own), share.samples)]

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> Tensor:
        return cut_windows(self._corpus.held_out, self._batches[index], self._model, self._corpus)


def cut_windows(stream: Tokens, starts: list[int], model: TextModelConfig, corpus: Corpus) -> Tensor:
    """Return (len(starts), context + 1) int64 tokens. Raises UserError for a token that the model has no row for."""
    rows = np.stack([stream[start : start + model.context + 1] for start in starts])
    if rows.max() >= model.vocabulary:
        raise UserError(
            f"{corpus.source} holds token {rows.max()}, but model.vocabulary={model.vocabulary}; "
            "set model.vocabulary above the largest token"
        )
    return torch.from_numpy(rows.astype(np.int64))


def split_tokens(rows: Tensor) -> Batch:
    """Return inputs and targets (samples, context) of windows (samples, context + 1): each token predicts the next."""
    return rows[:, :-1], rows[:, 1:]


def synthetic_batch(model: ModelConfig, share: Share, seed: int, device: torch.device) -> Batch:
    """Return one batch of random samples made on the device, each from its own number in the global batch."""
    make = network_class(model).synthetic_sample
    samples = [
        make(model, torch.Generator(device).manual_seed(seed * 1_000_003 + number)) for number in share.numbers(0)
    ]
    inputs, targets = torch.stack([i for i, _ in samples]), torch.stack([t for _, t in samples])
    return (inputs.contiguous(memory_format=torch.channels_last), targets) if inputs.dim() == 4 else (inputs, targets)
