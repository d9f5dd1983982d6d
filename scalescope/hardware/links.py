"""How the devices of this machine are linked, as the driver tells it."""

from dataclasses import dataclass
from typing import Any

from scalescope.hardware.management import ask_nvml

# nvmlDeviceGetTopologyCommonAncestor: what lies between two devices without NVLink, nearest first
_ANCESTORS = {
    0: "the same board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "one host bridge",
    40: "one CPU socket",
    50: "two CPU sockets",
}


@dataclass(frozen=True)
class Links:
    """The links among the visible devices."""

    nvlinks: tuple[int, ...]  # active NVLinks of each device
    farthest: str | None  # what lies between the two devices that are farthest apart, over PCIe
    peer_access: bool  # every device can read every other's memory

    def describe(self) -> str:
        """Return one phrase, such as `18 NVLinks each, all peers reachable`."""
        if self.nvlinks and min(self.nvlinks) > 0:
            low, high = min(self.nvlinks), max(self.nvlinks)
            text = f"{low} NVLinks each" if low == high else f"{low} to {high} NVLinks"
        else:
            text = f"PCIe, across {self.farthest}" if self.farthest else "PCIe"
        return f"{text}, {'all peers reachable' if self.peer_access else 'not all peers reachable'}"


def read_links(pci_buses: list[str], peer_access: bool) -> Links | None:
    """Return the links of the devices at these PCI addresses through NVML; None where NVML does not answer."""
    return ask_nvml(lambda nvml: _links(nvml, pci_buses, peer_access)) if len(pci_buses) > 1 else None


def _links(nvml: Any, pci_buses: list[str], peer_access: bool) -> Links:
    handles = [nvml.nvmlDeviceGetHandleByPciBusId(bus.encode()) for bus in pci_buses]
    counts = tuple(_active_links(nvml, handle) for handle in handles)
    farthest = 0
    for index, one in enumerate(handles):
        for other in handles[index + 1 :]:
            try:
                farthest = max(farthest, int(nvml.nvmlDeviceGetTopologyCommonAncestor(one, other)))
            except nvml.NVMLError:
                continue
    return Links(nvlinks=counts, farthest=_ANCESTORS.get(farthest), peer_access=peer_access)


def _active_links(nvml: Any, handle: Any) -> int:
    active = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            active += nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED
        except nvml.NVMLError:
            break
    return active
