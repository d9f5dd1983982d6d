"""Saving and resuming: weights, optimiser and the next step, each strategy in its own format (DCP but for DeepSpeed).

Nothing else is state: the learning rate, the batch and the phase of a step follow from its number, so a resumed job's
losses are those of one that was never stopped, bit for bit on the same ranks. A checkpoint is written under another
name and renamed when every rank has finished, so a folder called `step-<n>` is whole.

In the background a save holds the loop up only for the copy to the host; a thread writes while training goes on. One
save runs at a time, none inside a Kineto window, and the job's last one is waited for. What could not be written is
said and costs its checkpoint alone: the job goes on, and the earlier ones stay.
"""

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from statistics import mean
from typing import Any, cast

import torch.distributed as dist

from scalescope.launch.job import Job
from scalescope.records.errors import RunError
from scalescope.train.config import TrainConfig
from scalescope.train.strategies.base import Strategy

_NAME = re.compile(r"step-(\d+)$")
_PART = ".step-*.part"


@dataclass(frozen=True)
class _Running:
    """A save that is being written in the background."""

    step: int
    future: "Future[float]"  # the seconds that writing took


class Checkpoints:
    """The checkpoints of one run folder, which every rank's node sees."""

    def __init__(self, job: Job[TrainConfig], strategy: Strategy[Any]) -> None:
        self._job = job
        self._strategy = strategy
        self._folder = job.folder.checkpoints
        self._running: _Running | None = None
        self._newest: int | None = None  # the step of the newest that this process knows to be whole
        self._held_s: list[float] = []  # by each save that began in time, while the loop waited
        self._written_s: list[float] = []  # in the background
        mode = job.config.checkpoint_mode
        # on a CPU the thread that writes would take its time from the steps' own
        wanted = mode == "background" or (mode == "auto" and job.device.type == "cuda")
        self._group: dist.ProcessGroup | None = None
        if wanted and job.config.strategy.saves_itself is None and job.config.checkpoint_every is not None:
            # the thread's own: on the job's host group its messages would come between those of the loop
            timeout = timedelta(seconds=job.config.launch.timeout_s)
            self._group = cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=timeout))

    def resume(self) -> int:
        """Load the newest checkpoint and return the step to go on with; 0 where there is none.

        Raises RunError where it cannot be read, naming what to do.
        """
        found: list[list[int]] = [[]]
        if self._job.is_rank0:
            found = [self._steps()]
            for part in self._folder.glob(_PART):  # what a killed job left
                shutil.rmtree(part, ignore_errors=True)
        dist.broadcast_object_list(found, src=0, group=self._job.host_group)
        steps = found[0]
        if not steps:
            return 0
        path = self._path(steps[-1])
        try:
            self._strategy.load(path, self._job.host_group)
        except (OSError, RuntimeError, ValueError) as error:
            earlier = f"step {steps[-2]}" if len(steps) > 1 else "the start"
            raise RunError(
                f"the checkpoint {path} cannot be read ({_line(error)}); remove it to go on from {earlier}"
            ) from error
        return steps[-1]

    def begin(self, next_step: int) -> None:
        """Save on all ranks, in the background where that pays."""
        started = time.perf_counter()
        self.settle()
        try:
            if self._group is None:
                self._write(next_step)
            else:
                self._together(self._ready)
                self._running = _Running(next_step, self._in_background(next_step, self._group))
        except (OSError, RuntimeError, ValueError) as error:
            self._lose(next_step, error)
        self._held_s.append(time.perf_counter() - started)

    def save(self, next_step: int) -> Path:
        """Save on all ranks and return where, once it is whole. Raises RunError where it cannot be written."""
        self.settle()
        path = self._path(next_step)
        there = [self._newest == next_step]  # a step's regular save may have come just before
        dist.broadcast_object_list(there, src=0, group=self._job.host_group)
        if not there[0]:
            try:
                self._write(next_step)
            except (OSError, RuntimeError, ValueError) as error:
                self._lose(next_step, error)
                raise RunError(f"the state could not be saved to {path} ({_line(error)})") from error
        return path

    def settle(self) -> None:
        """Wait for the save that is being written, if any."""
        if self._running is None:
            return
        running, self._running = self._running, None
        error = running.future.exception()
        if error is None:
            self._written_s.append(running.future.result())
        else:
            self._lose(running.step, error)

    def describe(self) -> list[str]:
        """Return what saving has cost, in a line; none where nothing was saved."""
        if not self._held_s:
            return []
        many = f"{len(self._held_s)} checkpoint{'s' if len(self._held_s) > 1 else ''}"
        line = f"{many} held the loop up for {mean(self._held_s):.2f} s each"
        if self._written_s:
            line += f", and took {mean(self._written_s):.2f} s in the background"
        return [line]

    def _write(self, next_step: int) -> None:
        """Raises OSError, RuntimeError or ValueError on every rank where any cannot write."""
        self._together(self._ready)
        self._together(lambda: self._strategy.save(self._part(next_step), self._job.host_group))
        self._together(lambda: self._keep(next_step) if self._job.is_rank0 else None)

    def _ready(self) -> None:
        """Do what a rank can fail at before it meets the others in DCP's collectives, which they would not leave."""
        import_module("torch.distributed.checkpoint")  # as saving does
        with Path(os.devnull).open("rb"):  # a descriptor is to be had
            pass

    def _together(self, do: Callable[[], None]) -> None:
        """Do something on every rank, and fail on every rank where one does."""
        failure = ""
        try:
            do()
        except (OSError, RuntimeError, ValueError, ImportError) as error:  # the last: a library needs a descriptor, too
            failure = _line(error)
        everyone = [""] * self._job.world.size
        dist.all_gather_object(everyone, failure, group=self._job.host_group)
        if any(everyone):
            raise RuntimeError(next(filter(None, everyone)))

    def _in_background(self, next_step: int, group: dist.ProcessGroup) -> "Future[float]":
        started = time.perf_counter()
        result: Future[float] = Future()

        def end(written: "Future[object]") -> None:  # in the thread that wrote
            try:
                written.result()
                if self._job.is_rank0:  # DCP's coordinator has finished, so every rank's part is there
                    self._keep(next_step)
                result.set_result(time.perf_counter() - started)
            except BaseException as error:  # noqa: BLE001 - DCP's own is none of Exception; `settle` says it
                result.set_exception(error)

        self._strategy.save_in_background(self._part(next_step), group).add_done_callback(end)
        return result

    def _keep(self, next_step: int) -> None:
        """Give a whole checkpoint its name, and let go of those that are too old."""
        path = self._path(next_step)
        shutil.rmtree(path, ignore_errors=True)
        self._part(next_step).rename(path)
        self._newest = next_step
        for step in self._steps()[: -self._job.config.keep_checkpoints]:
            shutil.rmtree(self._path(step), ignore_errors=True)

    def _lose(self, next_step: int, error: BaseException) -> None:
        if not self._job.is_rank0:
            return
        shutil.rmtree(self._part(next_step), ignore_errors=True)  # its room may be what the next one needs
        earlier = self._steps()
        newest = f"the newest is {self._path(earlier[-1])}" if earlier else "there is none yet"
        print(f"scalescope: the checkpoint before step {next_step} could not be written ({_line(error)}); {newest}",
              file=sys.stderr, flush=True)  # fmt: skip

    def _steps(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        return sorted(int(match[1]) for path in self._folder.iterdir() if (match := _NAME.fullmatch(path.name)))

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step}"

    def _part(self, step: int) -> Path:
        return self._folder / f".step-{step}.part"


def _line(error: BaseException) -> str:
    """Return an error in a line; of several ranks' failures, DCP's own error holds them by rank."""
    failures: dict[int, tuple[BaseException, object]] = getattr(error, "failures", {})
    if failures:
        error = next(iter(failures.values()))[0]
    return next(iter(str(error).splitlines()), type(error).__name__)
