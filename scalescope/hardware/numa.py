"""NUMA: which node a device hangs on, and whether a process runs there. Torch-free, from files below /sys."""

import os
from pathlib import Path

ROOT = Path("/")


def numa_node(pci_bus: str, root: Path = ROOT) -> int | None:
    """Return the NUMA node of the device at a PCI address; None where the machine tells none (a single node, a VM)."""
    text = _text(root / "sys/bus/pci/devices" / pci_bus.lower() / "numa_node")
    return int(text) if text is not None and text.isdigit() else None  # -1: none


def node_count(root: Path = ROOT) -> int:
    """Return how many NUMA nodes the machine has; 1 where that is not told."""
    return max(1, len(list((root / "sys/devices/system/node").glob("node[0-9]*"))))


def runs_on(root: Path = ROOT) -> list[int] | None:
    """Return the NUMA nodes whose cores this process may run on; None where the machine has one, or does not tell."""
    folders = sorted((root / "sys/devices/system/node").glob("node[0-9]*"), key=lambda path: int(path.name[4:]))
    if len(folders) < 2 or not hasattr(os, "sched_getaffinity"):
        return None
    mine = os.sched_getaffinity(0)
    return [int(path.name[4:]) for path in folders if mine & _cores(_text(path / "cpulist") or "")]


def bind_to(node: int, root: Path = ROOT) -> bool:
    """Let this process run on a node's cores alone, those of them that it may use; False, and nothing done, for none.

    Threads that it starts from here on follow, and so does the memory that they touch first.
    """
    cores = os.sched_getaffinity(0) & _cores(_text(root / f"sys/devices/system/node/node{node}/cpulist") or "")
    if not cores:
        return False
    os.sched_setaffinity(0, cores)
    return True


def _cores(text: str) -> set[int]:
    """Return what a list such as "0-3,8" stands for."""
    cores: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
