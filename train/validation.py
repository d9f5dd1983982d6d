"""The loss on held-out data, on the same samples whatever the number of ranks."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist

from scalescope.launch.job import Job
from scalescope.train.config import TrainConfig
from scalescope.train.data.samples import Batch
from scalescope.train.strategies.base import Strategy


class HeldOutSource(Protocol):
    """A rank's held-out batches on the host; all ranks have equally many."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...


def _as_it_is(batch: Any) -> Batch:
    inputs, targets = batch
    return inputs, targets


class HeldOutLoss:
    """Measures the held-out loss of all ranks together; where a job's data holds nothing out, there is none."""

    def __init__(
        self,
        job: Job[TrainConfig],
        batches: HeldOutSource | None = None,
        to_device: Callable[[Any], Batch] = _as_it_is,
    ) -> None:
        self._job = job
        self._batches = batches
        self._to_device = to_device

    def loss(self, strategy: Strategy[Any]) -> float | None:
        """Return the mean loss in nats over every rank's held-out samples. Waits for the device."""
        if not self._batches:
            return None
        total = torch.zeros(2, dtype=torch.float64)  # summed loss, samples
        for index in range(len(self._batches)):
            inputs, targets = self._to_device(self._batches[index])
            loss = float(strategy.evaluate(inputs, targets))
            total += torch.tensor([loss * len(inputs), len(inputs)], dtype=torch.float64)
        dist.all_reduce(total, group=self._job.host_group)
        return float(total[0] / total[1])
