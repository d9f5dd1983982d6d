"""Ceilings are the data sheet's dense figures, and what physics allows is computed from links, not guessed."""

import sys
from types import SimpleNamespace

import pytest
import torch

from scalescope.hardware.ceiling import measure_matmul
from scalescope.hardware.detect import describe
from scalescope.hardware.link_ceiling import link_ceiling_gb_s
from scalescope.hardware.peaks import PEAKS, find_peak
from scalescope.hardware.state import read_state


@pytest.mark.parametrize(
    ("name", "bf16"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("AMD Instinct MI300X", 1307),
        ("AMD Instinct MI250X / MI250", 191.5),
        ("AMD Radeon RX 7900 XTX", 122.8),
        ("NVIDIA GeForce RTX 4090", 165.2),
    ],
)
def test_a_device_is_found_by_its_drivers_name(name: str, bf16: float) -> None:
    peak = find_peak(name)
    assert peak is not None and peak.tflops("bf16") == bf16


@pytest.mark.parametrize(
    "name", ["NVIDIA H100 PCIe", "NVIDIA A100-PCIE-40GB", "NVIDIA H100 NVL", "Tesla V100", "NVIDIA GH200 480GB"]
)
def test_what_is_not_listed_is_not_guessed(name: str) -> None:
    assert find_peak(name) is None


def test_every_figure_has_a_source_and_is_dense() -> None:
    for peak in PEAKS:
        assert peak.source
        # the sparse headline figures are twice the dense ones, and no listed device reaches 3,000 dense bf16
        assert peak.bf16_tflops < 3000
        assert peak.fp8_tflops is None or 1.9 < peak.fp8_tflops / (peak.fp16_tflops or peak.bf16_tflops) < 2.1


def test_a_mesh_gives_a_small_group_only_the_edges_between_its_members() -> None:
    mi300x, h200 = find_peak("MI300X"), find_peak("H200")
    assert mi300x and h200
    assert link_ceiling_gb_s(mi300x, 2) == (64, "full mesh, 1 × 64 GB/s")
    assert link_ceiling_gb_s(mi300x, 8) == (448, "full mesh, 7 × 64 GB/s")
    assert link_ceiling_gb_s(h200, 2) == link_ceiling_gb_s(h200, 8)
    assert (link_ceiling_gb_s(h200, 2) or (0, ""))[0] == 450


@pytest.mark.parametrize(
    ("name", "size", "ceiling"),
    [("MI210", 8, 150), ("MI210", 3, 100), ("MI100", 8, 138), ("MI250X", 2, 200), ("MI250X", 3, 300),
     ("MI250X", 8, 350), ("MI300A", 4, 384)],
)  # fmt: skip
def test_a_device_sends_no_more_than_all_its_links_carry(name: str, size: int, ceiling: float) -> None:
    peak = find_peak(name)
    assert peak is not None and (link_ceiling_gb_s(peak, size) or (0, ""))[0] == ceiling


def test_a_partition_has_no_ceiling_of_its_links() -> None:
    peak = find_peak("AMD Instinct MI300X, one of 8 partitions")
    assert peak is not None and link_ceiling_gb_s(peak, 8) is None


def test_this_cpu_has_a_measured_ceiling() -> None:
    tflops, what = measure_matmul(torch.device("cpu"), "fp32")
    assert 0.001 < tflops < 50
    assert what == "1024³ fp32"
    assert describe(0, torch.device("cpu")).name


class SmiError(Exception):
    pass


def refuses(handle: str, clock: str) -> dict[str, object]:
    raise SmiError("not supported")


@pytest.mark.parametrize(
    ("watts", "power_w"),
    [
        ({"socket_power": 0, "current_socket_power": 742, "average_socket_power": "N/A"}, 742.0),  # MI300 and later
        ({"current_socket_power": "N/A", "average_socket_power": 311}, 311.0),  # MI200 and earlier
        ({"current_socket_power": "N/A", "average_socket_power": "N/A"}, None),
    ],
)
def test_an_amd_device_tells_its_power_under_either_name_and_what_it_refuses_costs_nothing_else(
    monkeypatch: pytest.MonkeyPatch, watts: dict[str, object], power_w: float | None
) -> None:
    """amdsmi's answers as its Python interface forms them: it does not run without the driver."""
    smi = SimpleNamespace(
        AmdSmiException=SmiError, AmdSmiClkType=SimpleNamespace(GFX="gfx"),
        amdsmi_init=lambda: None, amdsmi_shut_down=lambda: None,
        amdsmi_get_processor_handles=lambda: ["0000:01:00.0"], amdsmi_get_gpu_device_bdf=str,
        amdsmi_get_gpu_driver_info=lambda handle: {"driver_version": "6.12.12"},
        amdsmi_get_clock_info=refuses, amdsmi_get_power_info=lambda handle: watts,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    state = read_state("0000:01:00.0")
    assert (state.driver, state.power_w, state.sm_clock_mhz) == ("6.12.12", power_w, None)
