"""Which devices this process has: NVIDIA's CUDA, AMD's ROCm (torch calls both `cuda`), or the CPU."""

import platform
import socket
import sys
from importlib import metadata
from typing import Any, Literal

import torch

from scalescope.hardware.state import read_state
from scalescope.records.environment import cpu_name
from scalescope.records.rows import Device, Versions

Kind = Literal["cuda", "rocm", "cpu"]


def device_kind() -> Kind:
    """Return what this machine's torch can use."""
    if torch.cuda.is_available() and torch.cuda.device_count() > 0:
        return "rocm" if torch.version.hip else "cuda"
    return "cpu"


def device_count() -> int:
    """Return the accelerators that this process sees; 0 on a CPU machine."""
    return torch.cuda.device_count() if device_kind() != "cpu" else 0


def smallest_memory_bytes() -> int | None:
    """Return the memory of this machine's smallest GPU, or None on a CPU."""
    count = device_count()
    return min(torch.cuda.get_device_properties(index).total_memory for index in range(count)) if count else None


def describe(rank: int, device: torch.device) -> Device:
    """Describe one rank's device with its clocks, power and throttling at this moment, where it tells."""
    host = socket.gethostname()
    if device.type == "cpu":
        return Device(rank=rank, host=host, kind="cpu", name=cpu_name())
    properties: Any = torch.cuda.get_device_properties(device)  # its stub lacks the PCI address
    pci = None
    if hasattr(properties, "pci_bus_id"):
        pci = f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    state = read_state(pci)
    return Device(
        rank=rank,
        host=host,
        kind="rocm" if torch.version.hip else "cuda",
        name=properties.name,
        memory_bytes=properties.total_memory,
        compute_units=properties.multi_processor_count,
        pci_bus=pci,
        sm_clock_mhz=state.sm_clock_mhz,
        power_w=state.power_w,
        temperature_c=state.temperature_c,
        throttled=state.throttled,
    )


def versions(backend: str | None) -> Versions:
    """Return the versions that a figure depends on."""
    library = None
    if backend == "nccl" and torch.cuda.is_available():
        number = ".".join(str(part) for part in torch.cuda.nccl.version())
        library = f"{'rccl' if torch.version.hip else 'nccl'} {number}"
    elif backend is not None:
        library = backend
    try:
        own = metadata.version("scalescope")
    except metadata.PackageNotFoundError:
        own = "uninstalled"
    return Versions(
        scalescope=own,
        python=f"{platform.python_implementation()} {sys.version.split()[0]}",
        torch=str(torch.__version__),
        cuda=torch.version.cuda,
        hip=torch.version.hip,
        collective_library=library,
        driver=read_state(None).driver,
    )
