"""What the device is doing now: clocks, power, temperature, throttling. `None` where it does not tell."""

from dataclasses import dataclass

from records.environment import module_or_none


@dataclass(frozen=True)
class State:
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


def read_state(pci_bus: str | None) -> State:
    """Read the device at a PCI address through NVML or amdsmi; with None, only the driver's version."""
    return _nvml(pci_bus) or _amdsmi(pci_bus) or State()


def _nvml(pci_bus: str | None) -> State | None:
    nvml = module_or_none("pynvml")
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        driver = str(nvml.nvmlSystemGetDriverVersion())
        if pci_bus is None:
            return State(driver=driver)
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
        return State(
            driver=driver,
            sm_clock_mhz=ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            power_w=power / 1000 if power is not None else None,
            temperature_c=ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            throttled=names,
        )
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _amdsmi(pci_bus: str | None) -> State | None:
    smi = module_or_none("amdsmi")
    if smi is None:
        return None
    try:
        smi.amdsmi_init()
    except smi.AmdSmiException:
        return None
    try:
        handles = smi.amdsmi_get_processor_handles()
        if not handles:
            return None
        driver = str(smi.amdsmi_get_gpu_driver_info(handles[0]).get("driver_version"))
        # rocm-smi's order is not HIP's: join by PCI address
        here = [h for h in handles if pci_bus and smi.amdsmi_get_gpu_device_bdf(h).lower() == pci_bus.lower()]
        if not here:
            return State(driver=driver)
        clock = smi.amdsmi_get_clock_info(here[0], smi.AmdSmiClkType.GFX).get("clk")
        power = smi.amdsmi_get_power_info(here[0]).get("average_socket_power")
        return State(
            driver=driver,
            sm_clock_mhz=float(clock) if isinstance(clock, int | float) else None,
            power_w=float(power) if isinstance(power, int | float) else None,
        )
    except smi.AmdSmiException:
        return None
    finally:
        smi.amdsmi_shut_down()


def driver_device_count() -> int | None:
    """Return how many devices the driver has, whatever is visible to this process; None where no driver answers."""
    nvml = module_or_none("pynvml")
    if nvml is not None:
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            pass
        else:
            try:
                return int(nvml.nvmlDeviceGetCount())
            finally:
                nvml.nvmlShutdown()
    smi = module_or_none("amdsmi")
    if smi is not None:
        try:
            smi.amdsmi_init()
        except smi.AmdSmiException:
            return None
        try:
            return len(smi.amdsmi_get_processor_handles())
        finally:
            smi.amdsmi_shut_down()
    return None
