"""Which of the kernel driver's devices one of torch's is: HIP counts them by the visible-devices variables."""

from collections.abc import Mapping, Sequence

from scalescope.hardware.amd.kfd import Node
from scalescope.hardware.amd.visible import visible_devices


def locate(index: int, pci_bus: str, nodes: Sequence[Node], environ: Mapping[str, str]) -> Node | None:
    """Return the node of torch's device `index`, whose chip is at `pci_bus` (domain:bus:device); None where unclear.

    A torch device's PCI address names the chip alone, so that its partitions are told apart by their order. A process
    that changed a variable after HIP had read it may find another chip there: then only a chip that is whole is known.
    """
    here = [node for node in nodes if node.pci_bus == pci_bus]
    visible = visible_devices(environ, [node.unique_id for node in nodes])
    if index < len(visible) and nodes[visible[index]] in here:
        return nodes[visible[index]]
    return here[0] if len(here) == 1 else None
