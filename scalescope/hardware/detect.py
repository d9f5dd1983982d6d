"""Which devices this process has: NVIDIA's CUDA, AMD's ROCm (torch calls both `cuda`), or the CPU."""

import os
import platform
import socket
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch

from scalescope.hardware import numa
from scalescope.hardware.amd import kfd
from scalescope.hardware.amd.locate import locate
from scalescope.hardware.amd.smi import Address, product_name
from scalescope.hardware.boards import Reported, name_amd_device
from scalescope.hardware.links import Links, read_amd_edges, read_nvidia_links
from scalescope.hardware.state import read_state
from scalescope.records.environment import core_list, cpu_name
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


def describe(rank: int, device: torch.device, root: Path = Path("/")) -> Device:
    """Describe one rank's device with its clocks, power and throttling at this moment, where it tells.

    `root` is where the kernel's own files about it lie.
    """
    host = socket.gethostname()
    if device.type == "cpu":
        return Device(
            rank=rank,
            host=host,
            kind="cpu",
            name=cpu_name(),
            runs_on_nodes=numa.runs_on(root),
            threads=torch.get_num_threads(),
            cores=core_list(list(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else None,
        )
    properties: Any = torch.cuda.get_device_properties(device)  # its stub lacks the PCI address
    chip = _chip_address(properties)
    nodes = kfd.read_nodes(root) if torch.version.hip else []
    index = device.index if device.index is not None else torch.cuda.current_device()
    node = locate(index, chip, nodes, os.environ) if chip is not None else None
    address = _address(node) if node is not None else Address(f"{chip}.0") if chip is not None else None
    state = read_state(address)
    partition, partitions = _part(index, chip, node)
    return Device(
        rank=rank,
        host=host,
        kind="rocm" if torch.version.hip else "cuda",
        name=_name(properties, address, node, root),
        memory_bytes=properties.total_memory,
        compute_units=properties.multi_processor_count,
        pci_bus=address.pci_bus if address is not None else None,
        sm_clock_mhz=state.sm_clock_mhz,
        power_w=state.power_w,
        temperature_c=state.temperature_c,
        throttled=state.throttled,
        memory_clock_mhz=state.memory_clock_mhz,
        architecture=architecture(properties),
        partition=partition,
        partitions=partitions,
        peer_gb_s=_peers(node, nodes, root),
        numa_node=numa.numa_node(address.pci_bus, root) if address is not None and numa.node_count(root) > 1 else None,
        runs_on_nodes=numa.runs_on(root),
    )


def links_of(devices: Sequence[Device], root: Path = Path("/")) -> Links | None:
    """Return how the devices of this host are linked: through NVML, amdsmi, or AMD's kernel driver; None: not told."""
    buses = [device.pci_bus for device in devices if device.pci_bus is not None]
    reachable = _peer_access()
    if not torch.version.hip:
        return read_nvidia_links(buses, reachable)
    if len(devices) < 2 or len(buses) < len(devices):
        return None
    nodes = {(node.pci_bus, node.partition): node for node in kfd.read_nodes(root)}
    mine = [nodes.get((bus.partition(".")[0], each.partition or 0)) for bus, each in zip(buses, devices, strict=True)]
    known = [node for node in mine if node is not None]
    if len(known) == len(devices):
        found = read_amd_edges([_address(node) for node in known])
        if found is None:
            places = {node.node: place for place, node in enumerate(known)}
            edges = kfd.read_edges(known, root).items()
            found = {(places[one], places[other]): edge for (one, other), edge in edges} or None
    else:
        found = read_amd_edges([Address(bus) for bus in buses])
    return None if found is None else Links(peer_access=reachable, edges=found)


def _peer_access() -> bool:
    count = torch.cuda.device_count()
    return all(
        torch.cuda.can_device_access_peer(one, other) for one in range(count) for other in range(count) if one != other
    )


def pci_bus(properties: Any) -> str | None:
    """Return a device's PCI address as the kernel's files have it; None where torch does not tell."""
    chip = _chip_address(properties)
    return f"{chip}.0" if chip is not None else None


def architecture(properties: Any) -> str:
    """Return a device's architecture as compilers name it: gfx942 (without its features) or sm_90."""
    if torch.version.hip:
        return str(properties.gcnArchName).partition(":")[0]
    return f"sm_{properties.major}{properties.minor}"


def _address(node: kfd.Node) -> Address:
    return Address(f"{node.pci_bus}.0", node.node, node.partitions)


def _chip_address(properties: Any) -> str | None:
    """Return domain:bus:device: torch tells no function, which is 0 of every GPU that has no virtual functions."""
    if not hasattr(properties, "pci_bus_id"):
        return None
    return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}"


def _name(properties: Any, address: Address | None, node: kfd.Node | None, root: Path) -> str:
    if not torch.version.hip:
        return str(properties.name)
    return name_amd_device(
        Reported(
            name=properties.name,
            product=product_name(address) if address is not None else None,
            architecture=architecture(properties),
            compute_units=properties.multi_processor_count,
            memory_bytes=properties.total_memory,
            pci_id=_pci_id(address, root),
            partitions=node.partitions if node is not None else None,
        )
    )


def _part(index: int, chip: str | None, node: kfd.Node | None) -> tuple[int | None, int | None]:
    """Return which of how many equal partitions of its chip a device is; (None, None) where it is all of it.

    Where the kernel does not tell, torch's devices at the same address are the partitions that there are.
    """
    if node is not None:
        return (node.partition, node.partitions) if node.partitions > 1 else (None, None)
    if not torch.version.hip or chip is None:
        return None, None
    count = torch.cuda.device_count()
    same = [at for at in range(count) if _chip_address(torch.cuda.get_device_properties(at)) == chip]
    return (same.index(index), len(same)) if len(same) > 1 else (None, None)


def _pci_id(address: Address | None, root: Path) -> int | None:
    if address is None:
        return None
    try:
        return int((root / "sys/bus/pci/devices" / address.pci_bus / "device").read_text(encoding="utf-8"), 16)
    except (OSError, ValueError):
        return None


def _peers(node: kfd.Node | None, nodes: Sequence[kfd.Node], root: Path) -> dict[str, float]:
    """Return what an AMD device sends to each other one over their own links, GB/s, by the other's `Device.address`.

    Not to partitions of its own chip, which are no more than an address apart.
    """
    if node is None:
        return {}
    others = [other for other in nodes if other.pci_bus != node.pci_bus]
    edges = kfd.read_edges(nodes, root)
    if not any(edge.xgmi and edge.gb_s for edge in edges.values()):
        everyone = [node, *others]
        found = read_amd_edges([_address(one) for one in everyone]) or {}
        edges = {(everyone[one].node, everyone[other].node): edge for (one, other), edge in found.items()}
    speeds = {}
    for other in others:
        edge = edges.get((node.node, other.node))
        if edge is not None and edge.xgmi and edge.gb_s is not None:
            part = f"/{other.partition}" if other.partitions > 1 else ""
            speeds[f"{other.pci_bus}.0{part}"] = edge.gb_s
    return speeds


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
