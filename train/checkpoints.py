"""Saving and resuming: weights, optimiser and the next step, each strategy in its own format (DCP but for DeepSpeed).

Nothing else is state: the learning rate, the batch and the phase of a step follow from its number, so a resumed job's
losses are those of one that was never stopped, bit for bit on the same ranks. A checkpoint is written under another
name and renamed when every rank has finished, so a folder called `step-<n>` is whole.
"""

import re
import shutil
from pathlib import Path

import torch.distributed as dist

from launch.job import Job
from records.errors import RunError
from train.config import TrainConfig
from train.strategies import Strategy

_NAME = re.compile(r"step-(\d+)$")


class Checkpoints:
    """The checkpoints of one run folder, which every rank's node sees."""

    def __init__(self, job: Job[TrainConfig], strategy: Strategy) -> None:
        self._job = job
        self._strategy = strategy
        self._folder = job.folder.checkpoints

    def resume(self) -> int:
        """Load the newest checkpoint and return the step to go on with; 0 where there is none.

        Raises RunError where it cannot be read, naming what to do.
        """
        found: list[list[int]] = [self._steps() if self._job.is_rank0 else []]
        dist.broadcast_object_list(found, src=0, group=self._job.host_group)
        steps = found[0]
        if not steps:
            return 0
        path = self._path(steps[-1])
        try:
            self._strategy.load(path, self._job.host_group)
        except (OSError, RuntimeError, ValueError) as error:
            earlier = f"step {steps[-2]}" if len(steps) > 1 else "the start"
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise RunError(
                f"the checkpoint {path} cannot be read ({reason}); remove it to go on from {earlier}"
            ) from error
        return steps[-1]

    def save(self, next_step: int) -> Path:
        """Save on all ranks, keep the newest `keep_checkpoints`, and return where. Waits for the device."""
        path = self._path(next_step)
        part = path.with_name(f".{path.name}.part")
        self._strategy.save(part, self._job.host_group)
        dist.barrier(group=self._job.host_group)
        if self._job.is_rank0:
            shutil.rmtree(path, ignore_errors=True)
            part.rename(path)
            for step in self._steps()[: -self._job.config.keep_checkpoints]:
                shutil.rmtree(self._path(step), ignore_errors=True)
        return path

    def _steps(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        return sorted(int(match[1]) for path in self._folder.iterdir() if (match := _NAME.fullmatch(path.name)))

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step}"
