"""One rank's device, and what must be set around it before anything runs there."""

import os
from pathlib import Path

import torch

from scalescope.hardware.amd.build import channels_last_settings
from scalescope.hardware.detect import architecture, pci_bus
from scalescope.hardware.numa import bind_to, numa_node
from scalescope.launch.config import LaunchConfig
from scalescope.launch.world import World
from scalescope.records.errors import UserError


def take_device(launch: LaunchConfig, world: World, root: Path = Path("/")) -> torch.device:
    """Return this rank's device, made the current one; with `launch.numa`, the rank runs beside it from here on.

    On ROCm, channels_last reaches MIOpen by two variables alone, which torch reads at the first convolution. Raises
    UserError where a rank is to be bound to a node that the machine does not tell.
    """
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
