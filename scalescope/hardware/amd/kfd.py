"""AMD's kernel driver (KFD) about its devices, as files below /sys: which there are, and how they are linked.

Every partition of a chip is a node of its own. All that has one PCI address shares a chip; HIP counts nodes in this
order, less what the visible-devices variables take away.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
_NODES = "sys/class/kfd/kfd/topology/nodes"
_XGMI = 11  # HSA_IOLINKTYPE_XGMI; 2 is PCI Express


@dataclass(frozen=True)
class Node:
    """One device as HIP counts them: a whole chip, or one of its partitions."""

    node: int  # the kernel's number, by which amdsmi knows it, too
    pci_bus: str  # of the chip: domain:bus:device, without a function
    architecture: str  # gfx942
    compute_units: int
    partition: int = 0  # which of its chip's
    partitions: int = 1
    render_minor: int | None = None  # /dev/dri/renderD…
    unique_id: str | None = None  # as the visible-devices variables name it


@dataclass(frozen=True)
class Edge:
    """How one device reaches another."""

    xgmi: bool  # AMD's own links; else PCI Express
    weight: int
    gb_s: float | None = None  # one way; None: not told
    hops: int | None = None


def read_nodes(root: Path = ROOT) -> list[Node]:
    """Return the devices that the kernel shows to this process, in its order; none where there is no KFD.

    A container's cgroup hides what it may not open: such a node's properties cannot be read.
    """
    found: list[tuple[int, Mapping[str, int]]] = []
    for folder in _numbered(root / _NODES):
        properties = _properties(folder / "properties")
        if properties.get("simd_count", 0) > 0:  # 0: a CPU
            found.append((int(folder.name), properties))
    chips: dict[str, list[int]] = {}
    for number, properties in found:
        chips.setdefault(_pci_bus(properties), []).append(number)
    return [_node(number, properties, chips[_pci_bus(properties)]) for number, properties in found]


def read_edges(nodes: Sequence[Node], root: Path = ROOT) -> dict[tuple[int, int], Edge]:
    """Return how these devices reach each other directly, by the kernel's numbers (from, to)."""
    wanted = {node.node for node in nodes}
    edges: dict[tuple[int, int], Edge] = {}
    for node in nodes:
        for kind in ("io_links", "p2p_links"):
            for folder in _numbered(root / _NODES / str(node.node) / kind):
                link = _properties(folder / "properties")
                to = link.get("node_to", -1)
                if to in wanted and (node.node, to) not in edges:
                    megabytes = link.get("max_bandwidth", 0)
                    edges[node.node, to] = Edge(
                        xgmi=link.get("type") == _XGMI,
                        weight=link.get("weight", 0),
                        gb_s=megabytes / 1e3 if megabytes else None,
                    )
    return edges


def _node(number: int, properties: Mapping[str, int], of_chip: Sequence[int]) -> Node:
    version = properties.get("gfx_target_version", 0)
    unique = properties.get("unique_id", 0)
    return Node(
        node=number,
        pci_bus=_pci_bus(properties),
        # 90402 is 9.4.2, whose last two figures LLVM writes in hexadecimal: gfx942, gfx90a
        architecture=f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}",
        compute_units=properties["simd_count"] // (properties.get("simd_per_cu") or 1),
        partition=of_chip.index(number),
        partitions=len(of_chip),
        render_minor=properties.get("drm_render_minor"),
        unique_id=f"GPU-{unique:016x}" if unique else None,
    )


def _pci_bus(properties: Mapping[str, int]) -> str:
    """Return the chip's address, less a partition's number: bits 31 to 28, on older kernels those of the function."""
    location = properties.get("location_id", 0)
    return f"{properties.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"


def _numbered(folder: Path) -> list[Path]:
    try:
        return sorted((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    except OSError:
        return []


def _properties(path: Path) -> Mapping[str, int]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:  # not there, or not ours to see
        return {}
    words = [line.split() for line in lines]
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].lstrip("-").isdigit()}
