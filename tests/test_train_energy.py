"""A step's energy comes from the device's own counter over undisturbed stretches; elsewhere it is absent, never 0."""

import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from scalescope.hardware.energy import open_energy_counter
from scalescope.records.rows import StepRow
from scalescope.train.measure.accounting import Accounting
from scalescope.train.measure.energy import PowerMeter
from scalescope.train.measure.schedule import Schedule
from scalescope.train.measure.summary import summarise


class Device:
    """A device that draws 500 W, on a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.used_j = 1e6

    def joules(self) -> float:
        return self.used_j

    def run(self, seconds: float) -> None:
        self.now_s += seconds
        self.used_j += 500 * seconds


def test_steps_that_fill_the_time_between_two_readings_have_its_power() -> None:
    device = Device()
    meter = PowerMeter(device, lambda: device.now_s)
    assert math.isnan(meter.watts([10.0]))  # the first reading
    device.run(1.0)
    assert meter.watts([100.0] * 10) == pytest.approx(500)
    device.run(3.0)  # a validation of 2 s in it
    assert math.isnan(meter.watts([100.0] * 10))
    device.run(1.02)  # and the next stretch is undisturbed again
    assert meter.watts([100.0] * 10) == pytest.approx(500)
    device.run(0.05)  # the counter is too coarse for it
    assert math.isnan(meter.watts([50.0]))


def test_a_device_that_does_not_tell_has_no_energy() -> None:
    assert open_energy_counter(None) is None  # a CPU
    assert math.isnan(PowerMeter(None).watts([100.0]))


ACCOUNTING = Accounting(2, 64, 1024, 1e12, 1.5e12, 989, 700)


def step(power_w: float, accounting: Accounting = ACCOUNTING) -> StepRow:
    return accounting.row(step=3, phase="steady", step_ms=[80.0, 100.0], losses=[2.0, 4.0], memory_peak_bytes=None,
                          power_w=power_w, validation_loss=None, attempt=0, unix_s=0.0)  # fmt: skip


def test_a_rows_energy_is_all_devices_power_over_their_samples() -> None:
    assert step(power_w=1280.0).joules_per_sample == pytest.approx(2.0)  # 640 samples a second
    assert step(power_w=math.nan).joules_per_sample is None


def test_hfu_counts_what_is_computed_again_over_both_ceilings() -> None:
    made = step(power_w=math.nan)
    assert made.mfu == pytest.approx(640 * 1e12 / (989e12 * 2))
    assert made.hfu == pytest.approx(640 * 1.5e12 / (989e12 * 2))
    assert made.hfu_of_measured == pytest.approx(640 * 1.5e12 / (700e12 * 2))


def test_the_last_lines_of_a_job_tell_energy_and_hfu_where_they_are_known() -> None:
    known = summarise("gpt", [step(power_w=1280.0)], Schedule(4, 0, ()))
    assert "HFU 48.5% of the data-sheet peak, HFU 68.6% of the measured matmul ceiling, 2 J/sample" in known[1]
    plain = summarise("gpt", [step(math.nan, replace(ACCOUNTING, hardware_flops_per_sample=1e12))], Schedule(4, 0, ()))
    assert len(plain) == 1 and "HFU" not in plain[0]


def test_ranks_that_never_wait_for_one_another_add_up_their_own_throughputs() -> None:
    """Nobody loses anything by the slowest of them: in each step that may be another one."""
    apart = step(1280.0, replace(ACCOUNTING, synchronised=False))
    assert apart.samples_per_s == pytest.approx(32 / 0.080 + 32 / 0.100)
    assert apart.length_ms == pytest.approx(64 / apart.samples_per_s * 1e3)
    assert apart.joules_per_sample == pytest.approx(1280 / 720)
    assert step(1280.0).length_ms == 100.0
    assert "median step 88.89 ms" in summarise("gpt", [apart], Schedule(4, 0, ()))[0]


class SmiError(Exception):
    pass


def test_nvmls_millijoules_and_amdsmis_units_become_joules(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the two libraries answer, as their manuals have it: neither runs without its driver."""
    nvml = SimpleNamespace(
        NVMLError=SmiError, nvmlInit=lambda: None, nvmlDeviceGetHandleByPciBusId=lambda bus: bus,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: 12_345,
    )  # fmt: skip
    smi = SimpleNamespace(
        AmdSmiException=SmiError, amdsmi_init=lambda: None, amdsmi_get_processor_handles=lambda: ["0000:01:00.0"],
        amdsmi_get_gpu_device_bdf=str, amdsmi_get_energy_count=lambda handle: {
            "energy_accumulator": 2_000_000, "counter_resolution": 15.3, "timestamp": 1},
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    counter = open_energy_counter("0000:01:00.0")
    assert counter is not None and counter.joules() == pytest.approx(12.345)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    counter = open_energy_counter("0000:01:00.0")
    assert counter is not None and counter.joules() == pytest.approx(30.6)
    assert open_energy_counter("0000:02:00.0") is None
