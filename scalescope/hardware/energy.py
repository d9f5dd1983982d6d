"""A device's own counter of the energy that it has used: NVML's, or amdsmi's. Torch-free."""

from typing import Any, Protocol

from scalescope.hardware.amd.smi import Address, ask, find_socket, number
from scalescope.records.environment import module_or_none
from scalescope.records.rows import Device


class EnergyCounter(Protocol):
    """Counts up, from wherever it began."""

    def joules(self) -> float | None:
        """Return the count now; None where the device does not tell any more."""


class NvmlCounter:
    """NVIDIA's, from Volta on: the whole board, in millijoules, brought up to date some ten times a second."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def joules(self) -> float | None:
        try:
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3
        except self._nvml.NVMLError:
            return None


class AmdCounter:
    """AMD's: the socket's, as a number of units of so many microjoules. A partition's is its equal share of it.

    So what all partitions of a chip have used adds up to what the chip has, whichever ranks read it.
    """

    def __init__(self, smi: Any, handle: Any, partitions: int = 1) -> None:
        self._smi = smi
        self._handle = handle
        self._partitions = partitions

    def joules(self) -> float | None:
        count = ask(self._smi, "amdsmi_get_energy_count", self._handle)
        units = number(count, "energy_accumulator", "power")  # the latter is its name before ROCm 6.4
        resolution = number(count, "counter_resolution")
        if units is None or resolution is None:
            return None
        return units * resolution / 1e6 / self._partitions


def energy_counter_of(device: Device) -> EnergyCounter | None:
    """Return the counter of a rank's device; None where it has none."""
    if device.pci_bus is None:
        return None
    return open_energy_counter(Address(device.pci_bus, partitions=device.partitions or 1))


def open_energy_counter(address: Address | str | None) -> EnergyCounter | None:
    """Return the counter of the device at an address; None where it has none (a CPU, an older device)."""
    if address is None:
        return None
    where = Address(address) if isinstance(address, str) else address
    counter = _open_nvml(where.pci_bus) or _open_amdsmi(where)
    return counter if counter is not None and counter.joules() is not None else None


def _open_nvml(pci_bus: str) -> EnergyCounter | None:
    nvml = module_or_none("pynvml")
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
        return NvmlCounter(nvml, nvml.nvmlDeviceGetHandleByPciBusId(pci_bus.encode()))
    except nvml.NVMLError:
        return None


def _open_amdsmi(address: Address) -> EnergyCounter | None:
    smi = module_or_none("amdsmi")
    if smi is None:
        return None
    try:
        smi.amdsmi_init()
        handle = find_socket(smi, address)
    except smi.AmdSmiException:
        return None
    return None if handle is None else AmdCounter(smi, handle, address.partitions)
