"""What the device is doing now: clocks, power, temperature, throttling. `None` where it does not tell."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scalescope.hardware.management import ask_amdsmi, ask_nvml


@dataclass(frozen=True)
class DeviceState:
    """One reading."""

    driver: str | None = None
    sm_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttled: str | None = None  # the reasons, in the driver's words; "no" where it runs free


# nvmlClocksThrottleReason*: those that cost performance (idle and application settings do not)
_THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
# the socket's watts in amdsmi_get_power_info: MI300 and later tell the first alone, MI200 and earlier the second
_POWERS = ("current_socket_power", "average_socket_power", "socket_power")


def read_state(pci_bus: str | None) -> DeviceState:
    """Read the device at a PCI address through NVML or amdsmi; with None, only the driver's version."""
    return ask_nvml(lambda nvml: _nvml(nvml, pci_bus)) or ask_amdsmi(lambda smi: _amdsmi(smi, pci_bus)) or DeviceState()


def driver_device_count() -> int | None:
    """Return how many devices the driver has, whatever is visible to this process; None where no driver answers."""
    count = ask_nvml(lambda nvml: int(nvml.nvmlDeviceGetCount()))
    return count if count is not None else ask_amdsmi(lambda smi: len(smi.amdsmi_get_processor_handles()))


def _nvml(nvml: Any, pci_bus: str | None) -> DeviceState:
    driver = str(nvml.nvmlSystemGetDriverVersion())
    if pci_bus is None:
        return DeviceState(driver=driver)
    handle = nvml.nvmlDeviceGetHandleByPciBusId(pci_bus.encode())

    def ask(name: str, *arguments: int) -> float | None:
        try:
            return float(getattr(nvml, name)(handle, *arguments))
        except nvml.NVMLError:
            return None

    power = ask("nvmlDeviceGetPowerUsage")
    reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    names = None
    if reasons is not None:
        names = ", ".join(text for bit, text in _THROTTLE_REASONS.items() if int(reasons) & bit) or "no"
    return DeviceState(
        driver=driver,
        sm_clock_mhz=ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        power_w=power / 1000 if power is not None else None,
        temperature_c=ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        throttled=names,
    )


def _amdsmi(smi: Any, pci_bus: str | None) -> DeviceState | None:
    handles = smi.amdsmi_get_processor_handles()
    if not handles:
        return None
    driver = str(smi.amdsmi_get_gpu_driver_info(handles[0]).get("driver_version"))
    # rocm-smi's order is not HIP's: join by PCI address
    here = [h for h in handles if pci_bus and smi.amdsmi_get_gpu_device_bdf(h).lower() == pci_bus.lower()]
    if not here:
        return DeviceState(driver=driver)

    def ask(name: str, *arguments: object) -> Mapping[str, object]:
        try:
            return dict(getattr(smi, name)(here[0], *arguments))
        except smi.AmdSmiException:  # not in a virtual machine, say
            return {}

    clocks, powers = ask("amdsmi_get_clock_info", smi.AmdSmiClkType.GFX), ask("amdsmi_get_power_info")
    return DeviceState(driver=driver, sm_clock_mhz=_number(clocks, "clk"), power_w=_number(powers, *_POWERS))


def _number(answer: Mapping[str, object], *keys: str) -> float | None:
    """Return the first of these that the device tells: amdsmi gives a word ("N/A") for what it does not."""
    known = [value for key in keys if isinstance(value := answer.get(key), int | float)]
    return float(known[0]) if known else None
