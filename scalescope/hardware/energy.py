"""A device's own counter of the energy that it has used: NVML's, or amdsmi's. Torch-free."""

from typing import Any, Protocol

from scalescope.records.environment import module_or_none


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
    """AMD's: the socket, as a number of units of so many microjoules."""

    def __init__(self, smi: Any, handle: Any) -> None:
        self._smi = smi
        self._handle = handle

    def joules(self) -> float | None:
        try:
            count = self._smi.amdsmi_get_energy_count(self._handle)
        except self._smi.AmdSmiException:
            return None
        units = count.get("energy_accumulator", count.get("power"))  # its name before ROCm 6.4
        resolution = count.get("counter_resolution")
        if not isinstance(units, int | float) or not isinstance(resolution, int | float):
            return None
        return units * resolution / 1e6


def open_energy_counter(pci_bus: str | None) -> EnergyCounter | None:
    """Return the counter of the device at a PCI address; None where it has none (a CPU, an older device)."""
    if pci_bus is None:
        return None
    counter = _open_nvml(pci_bus) or _open_amdsmi(pci_bus)
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


def _open_amdsmi(pci_bus: str) -> EnergyCounter | None:
    smi = module_or_none("amdsmi")
    if smi is None:
        return None
    try:
        smi.amdsmi_init()
        for handle in smi.amdsmi_get_processor_handles():
            if smi.amdsmi_get_gpu_device_bdf(handle).lower() == pci_bus.lower():
                return AmdCounter(smi, handle)
    except smi.AmdSmiException:
        pass
    return None
