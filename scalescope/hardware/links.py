"""How the devices of this machine are linked, as the driver tells it: NVML, amdsmi, or AMD's kernel driver itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalescope.hardware.amd.kfd import Edge
from scalescope.hardware.amd.smi import Address, ask, find_handle, number, value_of
from scalescope.hardware.management import ask_amdsmi, ask_nvml

# nvmlDeviceGetTopologyCommonAncestor: what lies between two devices without NVLink, nearest first
_ANCESTORS = {
    0: "the same board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "one host bridge",
    40: "one CPU socket",
    50: "two CPU sockets",
}

Edges = Mapping[tuple[int, int], Edge]  # (from, to), by the devices' places in a list


@dataclass(frozen=True)
class Links:
    """The links among the visible devices."""

    peer_access: bool  # every device can read every other's memory
    nvlinks: tuple[int, ...] = ()  # active NVLinks of each device
    farthest: str | None = None  # what lies between the two devices that are farthest apart, over PCIe
    edges: Edges | None = None  # of AMD's devices

    def describe(self) -> str:
        """Return one phrase, such as `18 NVLinks each, all peers reachable`."""
        if self.edges is not None:
            text = _of_edges(self.edges)
        elif self.nvlinks and min(self.nvlinks) > 0:
            low, high = min(self.nvlinks), max(self.nvlinks)
            text = f"{low} NVLinks each" if low == high else f"{low} to {high} NVLinks"
        else:
            text = f"PCIe, across {self.farthest}" if self.farthest else "PCIe"
        return f"{text}, {'all peers reachable' if self.peer_access else 'not all peers reachable'}"


def read_nvidia_links(pci_buses: Sequence[str], peer_access: bool) -> Links | None:
    """Return the links of the devices at these PCI addresses through NVML; None where NVML does not answer."""
    return ask_nvml(lambda nvml: _links(nvml, pci_buses, peer_access)) if len(pci_buses) > 1 else None


def active_nvlinks(pci_bus: str) -> int:
    """Return how many NVLinks of the device at this PCI address are up; 0 where NVML does not answer."""
    return ask_nvml(lambda nvml: _active_links(nvml, nvml.nvmlDeviceGetHandleByPciBusId(pci_bus.encode()))) or 0


def read_amd_edges(addresses: Sequence[Address]) -> Edges | None:
    """Return how AMD devices reach each other through amdsmi; None where it does not answer for all of them."""
    return ask_amdsmi(lambda smi: _edges(smi, addresses)) if len(addresses) > 1 else None


def _edges(smi: Any, addresses: Sequence[Address]) -> Edges | None:
    handles = [find_handle(smi, address) for address in addresses]
    if any(handle is None for handle in handles):
        return None
    edges = {}
    for one, own in enumerate(handles):
        for other, peer in enumerate(handles):
            if one != other and (edge := _edge(smi, own, peer)) is not None:
                edges[one, other] = edge
    return edges or None


def _edge(smi: Any, own: Any, peer: Any) -> Edge | None:
    link = ask(smi, "amdsmi_topo_get_link_type", own, peer)
    kind, weight = number(link, "type"), value_of(smi, "amdsmi_topo_get_link_weight", own, peer)
    if kind is None:
        return None
    megabytes = number(ask(smi, "amdsmi_get_minmax_bandwidth_between_processors", own, peer), "max_bandwidth")
    hops = number(link, "hops")
    return Edge(
        xgmi=int(kind) == _xgmi(smi),
        weight=int(weight) if isinstance(weight, int) else 0,
        gb_s=megabytes / 1e3 if megabytes else None,
        hops=int(hops) if hops is not None else None,
    )


def _xgmi(smi: Any) -> int | None:
    """Return amdsmi's number for its own links: two enumerations, and releases differ in which one answers have."""
    kinds = getattr(smi, "AmdSmiIoLinkType", None)
    if kinds is not None:
        return int(kinds.XGMI)
    kinds = getattr(smi, "AmdSmiLinkType", None)
    return int(kinds.AMDSMI_LINK_TYPE_XGMI) if kinds is not None else None


def _of_edges(edges: Edges) -> str:
    if not all(edge.xgmi for edge in edges.values()):
        own = sum(edge.xgmi for edge in edges.values())
        return f"PCIe, and XGMI between {own // 2} of {len(edges) // 2} pairs" if own else "PCIe"
    far = max(edge.hops or 1 for edge in edges.values())
    speeds = sorted({edge.gb_s for edge in edges.values() if edge.gb_s is not None}, reverse=True)
    each = f" of {', '.join(f'{speed:g}' for speed in speeds)} GB/s" if speeds else ""
    return f"XGMI{each} between every pair{f', {far} hops at most' if far > 1 else ''}"


def _links(nvml: Any, pci_buses: Sequence[str], peer_access: bool) -> Links:
    handles = [nvml.nvmlDeviceGetHandleByPciBusId(bus.encode()) for bus in pci_buses]
    counts = tuple(_active_links(nvml, handle) for handle in handles)
    farthest = 0
    for index, one in enumerate(handles):
        for other in handles[index + 1 :]:
            try:
                farthest = max(farthest, int(nvml.nvmlDeviceGetTopologyCommonAncestor(one, other)))
            except nvml.NVMLError:
                continue
    return Links(peer_access=peer_access, nvlinks=counts, farthest=_ANCESTORS.get(farthest))


def _active_links(nvml: Any, handle: Any) -> int:
    active = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            active += nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED
        except nvml.NVMLError:
            break
    return active
