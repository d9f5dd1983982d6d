"""The loss on held-out data, on the same samples whatever the number of ranks."""

import torch
import torch.distributed as dist

from launch.job import Job
from train.config import TrainConfig
from train.data import HeldOutBatches, split_tokens
from train.strategies import Strategy


class HeldOut:
    """Measures the held-out loss of all ranks together; where a job's data holds nothing out, there is none."""

    def __init__(self, job: Job[TrainConfig], batches: HeldOutBatches | None) -> None:
        self._job = job
        self._batches = batches

    def loss(self, strategy: Strategy) -> float | None:
        """Return the mean loss in nats over every rank's held-out samples. Waits for the device."""
        if not self._batches:
            return None
        total = torch.zeros(2, dtype=torch.float64)  # summed loss, samples
        for index in range(len(self._batches)):
            inputs, targets = split_tokens(self._batches[index].to(self._job.device))
            loss = float(strategy.evaluate(inputs, targets))
            total += torch.tensor([loss * len(inputs), len(inputs)], dtype=torch.float64)
        dist.all_reduce(total, group=self._job.host_group)
        return float(total[0] / total[1])
