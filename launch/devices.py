"""Which device and backend a job and each of its ranks get, and how many ranks this machine can hold."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scalescope.hardware.numa import bind_to, numa_node
from scalescope.launch.config import LaunchConfig
from scalescope.launch.world import World
from scalescope.records.environment import usable_cores
from scalescope.records.errors import UserError

if TYPE_CHECKING:
    import torch

CPU_RANKS = 2  # where nobody says how many: enough for communication, few enough for a laptop
_RANK_START_S = 4.0  # of a core, to load torch and join (measured: 3 to 5)
_MOST_A_CORE = 64  # ranks; nobody means more, and as many processes would stop the machine


@dataclass(frozen=True)
class DeviceChoice:
    """What `auto` came to on this machine."""

    device: str  # cuda | cpu
    backend: str  # nccl | gloo
    ranks: int
    threads_per_rank: int

    def crowding(self, cores: int) -> str | None:
        """Return what to expect of ranks that share cores, which nothing else says for minutes; None where none do."""
        if self.device != "cpu" or self.ranks <= cores:
            return None
        start_s = _RANK_START_S * self.ranks / cores
        return (f"{self.ranks} ranks share {cores} core{'s' if cores != 1 else ''} and take turns: about "
                f"{start_s:.0f} s until all have begun, and their figures say little of communication")  # fmt: skip


def resolve(launch: LaunchConfig, world_size: int | None = None, local_size: int | None = None) -> DeviceChoice:
    """Return where a job runs; `world_size` and `local_size` are given inside a world that somebody else made.

    Raises UserError for a device that is not there, or for more ranks on this machine than it has devices.
    """
    from scalescope.hardware.detect import device_count  # loads torch, which a mistyped key need not wait for

    devices = device_count()
    device = launch.device if launch.device != "auto" else ("cuda" if devices else "cpu")
    if device == "cuda" and not devices:
        raise UserError("launch.device=cuda, but torch sees no GPU here; check the driver, the visible-devices "
                        "variables and that this torch is a CUDA or ROCm build, or use launch.device=cpu")  # fmt: skip
    backend = launch.backend if launch.backend != "auto" else ("nccl" if device == "cuda" else "gloo")
    if backend == "nccl" and device == "cpu":
        raise UserError("launch.backend=nccl needs GPUs; on CPUs use launch.backend=gloo")
    cores = usable_cores()
    if world_size is not None:
        # an unknown local size is no reason to refuse: the launcher placed the ranks
        here = local_size or min(world_size, devices or world_size)
        ranks = world_size
    else:
        here = ranks = launch.ranks or (devices if device == "cuda" else min(CPU_RANKS, cores))
    one_each = world_size is not None and devices == 1  # each rank may see a device of its own and no other
    if device == "cuda" and here > devices and not one_each:
        raise UserError(f"{here} ranks on a machine with {devices} GPU{'s' if devices != 1 else ''}: two ranks cannot "
                        f"share one; use launch.ranks={devices} at most")  # fmt: skip
    if world_size is None and ranks > _MOST_A_CORE * cores:
        raise UserError(f"{ranks} ranks on {cores} core{'s' if cores != 1 else ''} are no job: launch.ranks can be "
                        f"{_MOST_A_CORE * cores} here at most")  # fmt: skip
    threads = launch.threads_per_rank or max(1, cores // here)
    return DeviceChoice(device=device, backend=backend, ranks=ranks, threads_per_rank=threads)


def take_device(launch: LaunchConfig, world: World, root: Path = Path("/")) -> "torch.device":
    """Return this rank's device, made the current one; with `launch.numa`, the rank runs beside it from here on.

    On ROCm, channels_last reaches MIOpen by two variables alone, which torch reads at the first convolution. Raises
    UserError where a rank is to be bound to a node that the machine does not tell.
    """
    import torch

    from scalescope.hardware.amd.build import channels_last_settings
    from scalescope.hardware.detect import architecture, pci_bus

    if launch.device != "cuda":
        if launch.threads_per_rank is not None:
            torch.set_num_threads(launch.threads_per_rank)
        return torch.device("cpu")
    # a launcher may show each rank its own device alone
    device = torch.device("cuda", 0 if torch.cuda.device_count() == 1 else world.local_rank)
    torch.cuda.set_device(device)
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        os.environ.update(channels_last_settings([architecture(properties)], os.environ))
    if launch.numa == "node":
        _bind(pci_bus(properties), root)
    return device


def _bind(bus: str | None, root: Path) -> None:
    node = numa_node(bus, root) if bus is not None else None
    if node is None:
        raise UserError(f"launch.numa=node: the machine does not tell which NUMA node the device at {bus} hangs on "
                        "(a virtual machine, or a single node); leave launch.numa out")  # fmt: skip
    if not bind_to(node, root):
        raise UserError(f"launch.numa=node: this process may run on no core of NUMA node {node}, on which its device "
                        "hangs; give it cores there (--cpu-bind, --cpuset-cpus), or leave launch.numa out")  # fmt: skip
