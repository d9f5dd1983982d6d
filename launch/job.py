"""A measuring job as its ranks see it: what `train` and `collectives` are handed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
import torch.distributed as dist

from scalescope.launch.config import JobConfig
from scalescope.launch.watch.progress_watchdog import ProgressWatchdog
from scalescope.launch.world import World
from scalescope.records.folder import RunFolder
from scalescope.records.rows import Ceilings, Device
from scalescope.records.sink import Sinks

Config = TypeVar("Config", bound=JobConfig)


@dataclass
class Job(Generic[Config]):
    """One rank's view of a running job. The default process group exists and is on `device`."""

    config: Config
    world: World
    folder: RunFolder  # on every rank; only rank 0 writes, but for a rank's own trace
    device: torch.device
    backend: str  # nccl | gloo
    store: dist.Store  # the job's key-value store, for ranks that wait without using a device
    host_group: dist.ProcessGroup  # gloo, all ranks: small host-side messages that touch no device
    devices: list[Device]  # of every rank
    ceilings: Ceilings  # what this rank's device can do
    sinks: Sinks  # rank 0's live sinks; on other ranks there are none
    watchdog: ProgressWatchdog  # it hears where this rank is, and ends a job in which one stops arriving

    @property
    def is_rank0(self) -> bool:
        return self.world.rank == 0


Body = Callable[[Job[Any]], None]
