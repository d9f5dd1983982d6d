"""AMD's management library about one device: amdsmi's handles are found by the kernel's node, never by their order.

amdsmi counts devices in an order of its own, and gives every partition of a chip a handle: by PCI address alone, each
of them would read the first one's sensors. Keys and units are those of ROCm/amdsmi's py-interface/amdsmi_interface.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from scalescope.hardware.management import ask_amdsmi


@dataclass(frozen=True)
class Address:
    """Which device is meant. `None`: not known."""

    pci_bus: str  # domain:bus:device, with a function or without
    node: int | None = None  # the kernel driver's number
    partitions: int = 1  # that share the chip


def find_handle(smi: Any, address: Address) -> Any | None:
    """Return the device's own handle; by its node, else by its PCI address where only one device has it."""
    handles = smi.amdsmi_get_processor_handles()
    if address.node is not None:
        for handle in handles:
            if _kfd(smi, handle).get("node_id") == address.node:
                return handle
    here = _of_chip(smi, handles, address)
    return here[0] if here and (address.partitions == 1 or address.node is None) else None


def find_socket(smi: Any, address: Address) -> Any | None:
    """Return the handle that tells what a whole chip has once: power and energy. It is that of the first partition."""
    here = _of_chip(smi, smi.amdsmi_get_processor_handles(), address)
    return min(here, key=lambda handle: number(_kfd(smi, handle), "node_id") or 0.0, default=None)


def product_name(address: Address) -> str | None:
    """Return the board's name as its own chip has it, else the one of the driver's table; None where neither tells."""

    def question(smi: Any) -> str | None:
        handle = find_socket(smi, address)
        if handle is None:
            return None
        names = (
            ask(smi, "amdsmi_get_gpu_board_info", handle).get("product_name"),
            ask(smi, "amdsmi_get_gpu_asic_info", handle).get("market_name"),
        )
        # the table has "0x74a1" where it has no name
        return next((str(name) for name in names if name and name != "N/A" and not str(name).startswith("0x")), None)

    return ask_amdsmi(question)


def ask(smi: Any, name: str, *arguments: object) -> Mapping[str, Any]:
    """Return a dictionary that amdsmi answers with; empty where it does not (a virtual machine, an older library)."""
    answer = value_of(smi, name, *arguments)
    return answer if isinstance(answer, Mapping) else {}


def value_of(smi: Any, name: str, *arguments: object) -> Any | None:
    """Return what amdsmi answers; None where it does not, or has no such function."""
    function: Callable[..., Any] | None = getattr(smi, name, None)
    if function is None:
        return None
    try:
        return function(*arguments)
    except smi.AmdSmiException:
        return None


def number(answer: Mapping[str, Any], *keys: str) -> float | None:
    """Return the first of these that the device tells: amdsmi gives a word ("N/A") for what it does not."""
    known = [value for key in keys if isinstance(value := answer.get(key), int | float) and not isinstance(value, bool)]
    return float(known[0]) if known else None


def _kfd(smi: Any, handle: Any) -> Mapping[str, Any]:
    return ask(smi, "amdsmi_get_gpu_kfd_info", handle)


def _of_chip(smi: Any, handles: list[Any], address: Address) -> list[Any]:
    chip = address.pci_bus.lower().partition(".")[0]
    return [handle for handle in handles if _bus_of(smi, handle) == chip]


def _bus_of(smi: Any, handle: Any) -> str:
    return str(value_of(smi, "amdsmi_get_gpu_device_bdf", handle)).lower().partition(".")[0]
