"""What the device is doing now: clocks, power, temperature, throttling. `None` where it does not tell."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scalescope.hardware.amd import smi as amd
from scalescope.hardware.amd.smi import Address
from scalescope.hardware.management import ask_amdsmi, ask_nvml


@dataclass(frozen=True)
class DeviceState:
    """One reading."""

    driver: str | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None  # of the whole chip, also where the device is one of its partitions
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
# amdsmi_get_violation_status: MI300 and later
_VIOLATIONS = {
    "active_ppt_pwr": "power cap",
    "active_socket_thrm": "thermal (socket)",
    "active_vr_thrm": "thermal (voltage regulator)",
    "active_hbm_thrm": "thermal (memory)",
    "active_prochot_thrm": "thermal (PROCHOT)",
}
# the socket's watts in amdsmi_get_power_info: MI300 and later tell the first alone, MI200 and earlier the second
_POWERS = ("current_socket_power", "average_socket_power", "socket_power")
_TEMPERATURES = ("HOTSPOT", "JUNCTION", "EDGE")  # the hottest place first; MI300 and later have no edge sensor
_NEVER_SO_HOT_C = 1000  # the manual says millidegrees, the library gives degrees: nothing runs where they overlap


def read_state(address: Address | str | None) -> DeviceState:
    """Read the device at an address through NVML or amdsmi; with None, only the driver's version."""
    where = Address(address) if isinstance(address, str) else address
    return ask_nvml(lambda nvml: _nvml(nvml, where)) or ask_amdsmi(lambda smi: _amdsmi(smi, where)) or DeviceState()


def driver_device_count() -> int | None:
    """Return how many devices the driver has, whatever is visible to this process; None where no driver answers."""
    count = ask_nvml(lambda nvml: int(nvml.nvmlDeviceGetCount()))
    return count if count is not None else ask_amdsmi(lambda smi: len(smi.amdsmi_get_processor_handles()))


def _nvml(nvml: Any, address: Address | None) -> DeviceState:
    driver = str(nvml.nvmlSystemGetDriverVersion())
    if address is None:
        return DeviceState(driver=driver)
    handle = nvml.nvmlDeviceGetHandleByPciBusId(address.pci_bus.encode())

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
        memory_clock_mhz=ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        power_w=power / 1000 if power is not None else None,
        temperature_c=ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        throttled=names,
    )


def _amdsmi(smi: Any, address: Address | None) -> DeviceState | None:
    handles = smi.amdsmi_get_processor_handles()
    if not handles:
        return None
    driver = str(amd.ask(smi, "amdsmi_get_gpu_driver_info", handles[0]).get("driver_version"))
    own = amd.find_handle(smi, address) if address is not None else None
    if own is None or address is None:
        return DeviceState(driver=driver)
    socket = amd.find_socket(smi, address)
    power = amd.number(amd.ask(smi, "amdsmi_get_power_info", own), *_POWERS)
    if power is None and socket is not None:  # a partition but the first tells none: it is the chip's
        power = amd.number(amd.ask(smi, "amdsmi_get_power_info", socket), *_POWERS)
    return DeviceState(
        driver=driver,
        sm_clock_mhz=_clock(smi, own, "GFX"),
        memory_clock_mhz=_clock(smi, own, "MEM"),
        power_w=power,
        temperature_c=_temperature(smi, own) or (_temperature(smi, socket) if socket is not None else None),
        throttled=_throttled(smi, own) or (_throttled(smi, socket) if socket is not None else None),
    )


def _clock(smi: Any, handle: Any, kind: str) -> float | None:
    clock = getattr(getattr(smi, "AmdSmiClkType", None), kind, None)
    return None if clock is None else amd.number(amd.ask(smi, "amdsmi_get_clock_info", handle, clock), "clk")


def _temperature(smi: Any, handle: Any) -> float | None:
    kinds, metrics = getattr(smi, "AmdSmiTemperatureType", None), getattr(smi, "AmdSmiTemperatureMetric", None)
    for name in _TEMPERATURES:
        kind = getattr(kinds, name, None)
        if kind is None or metrics is None:
            continue
        value = amd.value_of(smi, "amdsmi_get_temp_metric", handle, kind, metrics.CURRENT)
        if isinstance(value, int | float) and value > 0:
            return value / 1000 if value > _NEVER_SO_HOT_C else float(value)
    return None


def _throttled(smi: Any, handle: Any) -> str | None:
    status: Mapping[str, Any] = amd.ask(smi, "amdsmi_get_violation_status", handle)
    active = {text: status[key] for key, text in _VIOLATIONS.items() if isinstance(status.get(key), bool)}
    if active:
        return ", ".join(text for text, on in active.items() if on) or "no"
    throttling = amd.ask(smi, "amdsmi_get_gpu_metrics_info", handle).get("throttle_status")  # MI200 and earlier
    return None if not isinstance(throttling, bool) else "yes" if throttling else "no"
