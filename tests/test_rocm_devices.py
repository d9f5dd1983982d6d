"""AMD devices are what they are: nameless ones by what they are made of, partitions as shares, sensors by their own."""

from pathlib import Path
from typing import Any

import pytest
import torch

from scalescope.hardware.boards import Reported, name_amd_device
from scalescope.hardware.ceiling import ceilings, multiplied_in
from scalescope.hardware.detect import describe, links_of
from scalescope.hardware.energy import energy_counter_of
from scalescope.hardware.peaks import find_peak
from scalescope.records.rows import Device
from scalescope.scaling.trace.header import read_header
from tests.amd_machine import Chip, Machine, SmiError, use_amdsmi

GIB = 1024**3
NAMELESS = Chip(bus=0x05, name="", pci_id=0x74A1)


def describe_all(machine: Machine, root: Path, monkeypatch: pytest.MonkeyPatch) -> list[Device]:
    machine.be_torchs(monkeypatch)
    machine.lay_out(root)
    return [describe(at, torch.device("cuda", at), root) for at in range(len(machine.handles))]


@pytest.mark.parametrize("name", ["", "AMD Radeon Graphics"])
@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"product": "AMD Instinct MI300X OAM"}, "AMD Instinct MI300X OAM"),
        ({"architecture": "gfx942", "compute_units": 304, "memory_bytes": 206141652992}, "AMD Instinct MI300X"),
        ({"architecture": "gfx942", "compute_units": 304, "memory_bytes": int(255.98 * GIB)}, "AMD Instinct MI325X"),
        ({"architecture": "gfx90a", "compute_units": 110, "memory_bytes": 68702699520}, "AMD Instinct MI250X"),
        ({"architecture": "gfx942", "compute_units": 80, "memory_bytes": 206141652992}, "AMD Instinct MI308X"),
        ({"pci_id": 0x75A3}, "AMD Instinct MI355X"),
        # an MI350X and an MI355X are made of the same, and so are an MI210 and half an MI250: the PCI id tells
        ({"architecture": "gfx950", "compute_units": 256, "memory_bytes": 309220868096, "pci_id": 0x75A0},
         "AMD Instinct MI350X"),
        ({"architecture": "gfx90a", "compute_units": 104, "memory_bytes": 68702699520, "pci_id": 0x740F},
         "AMD Instinct MI210"),
        ({"architecture": "gfx942", "compute_units": 38, "memory_bytes": int(191.98 * GIB) // 8},
         "AMD Instinct MI300X, one of 8 partitions"),
    ],
)  # fmt: skip
def test_a_nameless_device_is_named_by_its_board(name: str, told: dict[str, object], expected: str) -> None:
    assert name_amd_device(Reported(name=name, **told)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"architecture": "gfx950", "compute_units": 256, "memory_bytes": 309220868096},
         "unnamed AMD GPU (gfx950, 256 compute units, 288 GiB)"),
        ({"architecture": "gfx1036", "compute_units": 2, "memory_bytes": 16 * GIB, "pci_id": 0x164E},
         "unnamed AMD GPU (gfx1036, 2 compute units, 16 GiB, PCI id 1002:164e)"),
        ({}, "unnamed AMD GPU (nothing known of it)"),
    ],
)  # fmt: skip
def test_what_nothing_tells_says_so_and_has_no_peak(told: dict[str, object], says: str) -> None:
    name = name_amd_device(Reported(**told))  # type: ignore[arg-type]
    assert name == says and find_peak(name) is None


def test_one_name_for_two_boards_is_told_apart_by_compute_units() -> None:
    """PCI id 740c's entry reads "AMD Instinct MI250X / MI250"."""
    told = Reported("AMD Instinct MI250X / MI250", None, "gfx90a", 104, 68702699520, 0x740C)
    assert name_amd_device(told) == "AMD Instinct MI250"
    assert name_amd_device(Reported("AMD Instinct MI250X / MI250", None, "gfx90a", 110, 68702699520)) == (
        "AMD Instinct MI250X")  # fmt: skip


def test_a_named_device_keeps_its_name() -> None:
    for name in ("AMD Instinct MI355X", "AMD Radeon RX 7900 XTX", "AMD Radeon Pro W7900", "AMD Instinct MI300X VF"):
        assert name_amd_device(Reported(name=name, compute_units=304, memory_bytes=206141652992)) == name


@pytest.mark.parametrize("smi", [True, False])
def test_a_nameless_mi300x_has_a_name_a_peak_and_a_ceiling(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, smi: bool
) -> None:
    machine = Machine([NAMELESS])
    use_amdsmi(monkeypatch, machine.amdsmi() if smi else None)
    (device,) = describe_all(machine, tmp_path, monkeypatch)
    assert (device.name, device.architecture, device.pci_bus) == ("AMD Instinct MI300X", "gfx942", "0000:05:00.0")
    peak = find_peak(device.name)
    assert peak is not None and peak.bf16_tflops == 1307


def test_the_nameless_device_of_a_real_mi300x_trace_is_named() -> None:
    """The header of AMD-AGI/TraceLens's tests/traces/inference/vllm_decode_full/graph_execution.json.gz."""
    text = (b'{"deviceProperties": [{"id": 0, "name": "", "totalGlobalMem": 206141652992, "computeMajor": 9, '
            b'"computeMinor": 4, "maxThreadsPerBlock": 1024, "warpSize": 64, "numSms": 304}],')  # fmt: skip
    header, whole = read_header(text, b"}")
    assert whole and header.devices[0].known_name == "AMD Instinct MI300X"


CPX = Machine([Chip(bus=0x05, partitions=8, pci_id=0x74A1), Chip(bus=0x26, partitions=8, pci_id=0x74A1, watts=500)])


@pytest.mark.parametrize("shift", [28, 0])  # newer kernels, and those of Linux 6.6 and before
def test_a_partition_has_its_share_of_the_chip_and_sensors_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shift: int
) -> None:
    machine = Machine(CPX.chips, shift=shift)
    # amdsmi counts the second chip first, and from its last partition on
    use_amdsmi(monkeypatch, machine.amdsmi(order=list(reversed(range(16)))))
    devices = describe_all(machine, tmp_path, monkeypatch)
    assert {device.name for device in devices} == {"AMD Instinct MI300X, one of 8 partitions"}
    assert [device.partition for device in devices] == [*range(8), *range(8)]
    assert len({device.address for device in devices}) == 16  # no two ranks have the same
    peak = find_peak(devices[3].name)
    assert peak is not None and peak.bf16_tflops == pytest.approx(1307 / 8)
    assert peak.memory_tb_s == pytest.approx(5.3 / 8) and peak.link_gb_s is None
    nodes = [handle.node for handle in machine.handles]
    assert [device.sm_clock_mhz for device in devices] == [1900 + 10 * node for node in nodes]
    assert [device.temperature_c for device in devices] == [60 + node for node in nodes]
    assert [device.power_w for device in devices] == [700] * 8 + [500] * 8  # the chip's, whichever partition asks


def test_partitions_energy_adds_up_to_the_chips(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_amdsmi(monkeypatch, CPX.amdsmi())
    devices = describe_all(CPX, tmp_path, monkeypatch)
    counters = [energy_counter_of(device) for device in devices[:8]]
    joules = [counter.joules() for counter in counters if counter is not None]
    assert len(joules) == 8 and sum(filter(None, joules)) == pytest.approx(2_000_000 * 15.259e-6)


def test_partitions_are_counted_without_the_kernels_files_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_amdsmi(monkeypatch, None)
    CPX.be_torchs(monkeypatch)
    devices = [describe(at, torch.device("cuda", at), tmp_path) for at in range(16)]
    assert len({device.address for device in devices}) == 16
    assert devices[9].name == "AMD Instinct MI300X, one of 8 partitions"


def test_a_hidden_partition_shifts_no_others_sensors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_amdsmi(monkeypatch, CPX.amdsmi())
    CPX.lay_out(tmp_path)
    CPX.be_torchs(monkeypatch, visible=[5, 3])
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "2,3,4,5")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3,1")
    one, other = (describe(at, torch.device("cuda", at), tmp_path) for at in (0, 1))
    assert (one.partition, other.partition) == (5, 3)
    assert (one.temperature_c, other.temperature_c) == (60 + 7, 60 + 5)


@pytest.mark.parametrize(
    ("name", "precision", "tflops"),
    [
        ("AMD Instinct MI100", "fp32", 46.1),  # matrix units, which rocBLAS uses; the vector rate is 23.1
        ("AMD Instinct MI210", "fp32", 45.3),
        ("AMD Instinct MI250X", "fp32", 47.85),
        ("AMD Instinct MI300X", "tf32", 653.7),
        ("AMD Instinct MI300A", "tf32", 490.3),
        ("AMD Instinct MI355X", "tf32", None),  # CDNA 4 has no such units
        ("AMD Instinct MI350X", "bf16", 2300),
        ("AMD Radeon RX 7900 XT", "bf16", 103.2),
        ("AMD Radeon RX 9070", "fp8", 289),
        ("AMD Radeon RX 9060 XT", "bf16", 102.6),
        ("AMD Instinct MI300X, one of 4 partitions", "bf16", 1307 / 4),
        ("NVIDIA A100-SXM4-40GB", "bf16", 312),
    ],
)
def test_peaks_of_what_was_missing_or_wrong(name: str, precision: str, tflops: float | None) -> None:
    peak = find_peak(name)
    assert peak is not None and peak.tflops(precision) == (None if tflops is None else pytest.approx(tflops))


def test_an_a100_of_40_gb_has_the_memory_of_its_own() -> None:
    small, large = find_peak("NVIDIA A100-SXM4-40GB"), find_peak("NVIDIA A100-SXM4-80GB")
    assert small and large and (small.memory_tb_s, large.memory_tb_s) == (1.555, 2.0)


@pytest.mark.parametrize(
    "name",
    ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "AMD Radeon RX 9070 GRE",
     "AMD Instinct MI308X", "AMD Radeon Graphics", ""],
)  # fmt: skip
def test_a_name_that_holds_anothers_is_not_taken_for_it(name: str) -> None:
    assert find_peak(name) is None


def test_what_amd_itself_reaches_stands_beside_the_data_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalescope.hardware.ceiling.measure_matmul", lambda device, precision: (650.0, "8192³ bf16"))
    found = ceilings(torch.device("cuda", 0), "AMD Instinct MI300X", "bf16")
    assert (found.peak_tflops, found.achievable_tflops) == (1307, 708)
    assert "TraceLens" in str(found.achievable_source)
    assert ceilings(torch.device("cuda", 0), "AMD Instinct MI300X", "fp16").achievable_tflops == 654


class Refusing:
    """torch.backends.cuda.matmul of a ROCm torch without HIPBLASLT_ALLOW_TF32=1: Context::allowTF32CuBLAS is false."""

    @property
    def allow_tf32(self) -> bool:
        return False

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        pass


def test_tf32_that_torch_refuses_is_measured_against_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    assert multiplied_in("tf32") == "tf32" and multiplied_in("bf16") == "bf16"
    monkeypatch.setattr(torch.backends.cuda, "matmul", Refusing())
    assert multiplied_in("tf32") == "fp32"
    monkeypatch.setattr("scalescope.hardware.ceiling.measure_matmul", lambda device, precision: (150.0, "8192³ fp32"))
    found = ceilings(torch.device("cuda", 0), "AMD Instinct MI300X", "tf32")
    assert (found.peak_tflops, found.peak_dtype) == (163.4, "fp32")


MESH = Machine([Chip(bus=at) for at in range(1, 5)], {(one, two): 64 for one in range(4) for two in range(one)})


@pytest.mark.parametrize("smi", [True, False])
def test_amds_links_are_told_and_its_peers_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, smi: bool) -> None:
    use_amdsmi(monkeypatch, MESH.amdsmi(order=[2, 0, 3, 1]) if smi else None)
    devices = describe_all(MESH, tmp_path, monkeypatch)
    links = links_of(devices, tmp_path)
    assert links is not None
    assert links.describe() == "XGMI of 64 GB/s between every pair, all peers reachable"
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda one, other: {one, other} != {0, 3})
    apart = links_of(devices, tmp_path)
    assert apart is not None and apart.describe().endswith("not all peers reachable")


def test_devices_without_amds_own_links_are_on_pcie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = Machine([Chip(bus=at, architecture="gfx1100", compute_units=96, memory_gib=24, name="AMD Radeon RX "
                            "7900 XTX") for at in (1, 2)])  # fmt: skip
    use_amdsmi(monkeypatch, machine.amdsmi())
    links = links_of(describe_all(machine, tmp_path, monkeypatch), tmp_path)
    assert links is not None and links.describe() == "PCIe, all peers reachable"


def test_the_device_says_what_it_sends_to_each_peer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_amdsmi(monkeypatch, None)
    devices = describe_all(MESH, tmp_path, monkeypatch)
    assert devices[1].peer_gb_s == {"0000:01:00.0": 64, "0000:03:00.0": 64, "0000:04:00.0": 64}


def one_device(monkeypatch: pytest.MonkeyPatch, root: Path, **answers: Any) -> Device:
    machine = Machine([Chip(bus=5)])
    use_amdsmi(monkeypatch, machine.amdsmi(**answers))
    return describe_all(machine, root, monkeypatch)[0]


def refuses(*_: object) -> object:
    raise SmiError("not supported")


def test_amds_temperature_clocks_and_throttling_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device = one_device(monkeypatch, tmp_path)
    assert (device.temperature_c, device.memory_clock_mhz, device.throttled) == (62, 1300, "no")
    capped = one_device(monkeypatch, tmp_path, amdsmi_get_violation_status=lambda handle: {
        "active_ppt_pwr": True, "active_hbm_thrm": True, "active_socket_thrm": False})  # fmt: skip
    assert capped.throttled == "power cap, thermal (memory)"
    older = one_device(monkeypatch, tmp_path, amdsmi_get_violation_status=refuses,
                       amdsmi_get_gpu_metrics_info=lambda handle: {"throttle_status": True})  # fmt: skip
    assert older.throttled == "yes"


def test_a_temperature_is_in_degrees_whichever_unit_the_library_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The manual says millidegrees; amd_smi.cc divides by a thousand."""
    in_thousandths = one_device(monkeypatch, tmp_path, amdsmi_get_temp_metric=lambda handle, kind, metric: 61_000)
    assert in_thousandths.temperature_c == 61


def test_what_amdsmi_refuses_costs_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device = one_device(monkeypatch, tmp_path, amdsmi_get_temp_metric=refuses, amdsmi_get_clock_info=refuses,
                        amdsmi_get_gpu_kfd_info=refuses, amdsmi_get_violation_status=refuses)  # fmt: skip
    assert (device.temperature_c, device.sm_clock_mhz, device.throttled, device.power_w) == (None, None, None, 700)
