"""Whether all ranks' devices reach each other by NVLink of one host: there, what overlaps hides less than it slows."""

import platform
import zlib

import torch
import torch.distributed as dist

from scalescope.hardware.detect import pci_bus
from scalescope.hardware.links import active_nvlinks

#: Devices that a switch joins have so many links each (A100: 12, H100 and H200: 18); bridges between cards have four.
_LEAST_LINKS = 12


def are_joined_by_nvlink(device: torch.device) -> bool:
    """Return whether every rank's device has NVLinks enough, all on one host. Collective: all ranks get one answer."""
    if device.type != "cuda" or torch.version.hip:
        return False
    bus = pci_bus(torch.cuda.get_device_properties(device))
    links = active_nvlinks(bus) if bus is not None else 0
    host = zlib.crc32(platform.node().encode())
    own = torch.tensor([links, host, -host], dtype=torch.int64, device=device)
    dist.all_reduce(own, dist.ReduceOp.MIN)
    least, lowest, highest = own.tolist()
    return bool(least >= _LEAST_LINKS and lowest == -highest)
