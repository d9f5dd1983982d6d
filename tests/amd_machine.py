"""A machine with AMD devices, laid out: KFD's files below a root, amdsmi's answers, and what a ROCm torch says.

The files are the kernel's (drivers/gpu/drm/amd/amdkfd/kfd_topology.c), the dictionaries' keys those of amdsmi's own
Python interface (ROCm/amdsmi, py-interface/amdsmi_interface.py), torch's properties those of a ROCm build.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch


@dataclass(frozen=True)
class Chip:
    """One chip, whole or split into equal partitions."""

    bus: int
    architecture: str = "gfx942"
    compute_units: int = 304
    memory_gib: float = 191.98
    partitions: int = 1
    name: str = "AMD Instinct MI300X"  # torch's
    product: str = "N/A"  # amdsmi's board
    market: str = "N/A"
    pci_id: int | None = None
    numa: int = 0
    watts: float = 700.0

    @property
    def pci(self) -> str:
        return f"0000:{self.bus:02x}:00"


@dataclass(frozen=True)
class Handle:
    """amdsmi's, which it calls a processor handle."""

    chip: Chip
    partition: int
    node: int


class SmiError(Exception):
    pass


class ClkType(IntEnum):
    GFX = 0
    MEM = 4


class TemperatureType(IntEnum):
    EDGE = 0
    HOTSPOT = 1
    JUNCTION = 1
    VRAM = 2


class TemperatureMetric(IntEnum):
    CURRENT = 0


class IoLinkType(IntEnum):
    UNDEFINED = 0
    PCIEXPRESS = 1
    XGMI = 2


_VERSIONS = {"gfx908": 90008, "gfx90a": 90010, "gfx942": 90402, "gfx950": 90500, "gfx1100": 110000, "gfx1201": 120001}


@dataclass
class Machine:
    """What `chips` come to. `speeds` are GB/s one way between two chips by XGMI, by their places."""

    chips: Sequence[Chip]
    speeds: Mapping[tuple[int, int], float] = field(default_factory=dict)
    cpus: int = 2  # nodes of the kernel's before the first device
    shift: int = 28  # where the kernel writes a partition's number

    @property
    def handles(self) -> list[Handle]:
        """Return every device in the kernel's order."""
        parts = [(chip, part) for chip in self.chips for part in range(chip.partitions)]
        return [Handle(chip, part, self.cpus + at) for at, (chip, part) in enumerate(parts)]

    def lay_out(self, root: Path) -> Path:
        """Write the kernel's files."""
        nodes = root / "sys/class/kfd/kfd/topology/nodes"
        for cpu in range(self.cpus):
            _write(nodes / str(cpu) / "properties", {"cpu_cores_count": 64, "simd_count": 0})
            _text(root / f"sys/devices/system/node/node{cpu}/cpulist", f"{cpu * 64}-{cpu * 64 + 63}")
        for handle in self.handles:
            chip, node = handle.chip, nodes / str(handle.node)
            location = chip.bus << 8 | (handle.partition << self.shift if chip.partitions > 1 else 0)
            _write(node / "properties", {
                "cpu_cores_count": 0, "simd_count": 4 * chip.compute_units // chip.partitions, "simd_per_cu": 4,
                "gfx_target_version": _VERSIONS[chip.architecture], "location_id": location, "domain": 0,
                "drm_render_minor": 128 + handle.node, "unique_id": 0x1000 + handle.node,
            })  # fmt: skip
            device = root / f"sys/bus/pci/devices/{chip.pci}.0"
            _text(device / "numa_node", str(chip.numa))
            if chip.pci_id is not None:
                _text(device / "device", f"0x{chip.pci_id:04x}")
            for at, other in enumerate(self.handles):
                speed = self.speed(chip, other.chip)
                if speed is not None:
                    _write(node / f"io_links/{at}/properties", {
                        "type": 11, "node_from": handle.node, "node_to": other.node, "weight": 15,
                        "min_bandwidth": 50_000, "max_bandwidth": round(speed * 1000),
                    })  # fmt: skip
        return root

    def speed(self, one: Chip, other: Chip) -> float | None:
        places = self.chips.index(one), self.chips.index(other)
        return self.speeds.get(places) or self.speeds.get((places[1], places[0]))

    def amdsmi(self, order: Sequence[int] | None = None, **answers: Any) -> SimpleNamespace:
        """Return a module that answers for these devices, in an order of its own; `answers` replace functions."""
        handles = self.handles
        shown = [handles[at] for at in order] if order is not None else handles

        def power(handle: Handle) -> dict[str, object]:
            told: object = handle.chip.watts if handle.partition == 0 else "N/A"
            return {"current_socket_power": told, "average_socket_power": "N/A", "power_limit": 750}

        def link(one: Handle, other: Handle) -> dict[str, int]:
            xgmi = self.speed(one.chip, other.chip) is not None
            return {"hops": 1 if xgmi else 2, "type": int(IoLinkType.XGMI if xgmi else IoLinkType.PCIEXPRESS)}

        def bandwidth(one: Handle, other: Handle) -> dict[str, int]:
            speed = self.speed(one.chip, other.chip)
            if speed is None:
                raise SmiError("not supported")
            return {"min_bandwidth": 50_000, "max_bandwidth": round(speed * 1000)}

        functions: dict[str, Any] = {
            "amdsmi_init": lambda: None,
            "amdsmi_shut_down": lambda: None,
            "amdsmi_get_processor_handles": lambda: shown,
            "amdsmi_get_gpu_device_bdf": lambda handle: f"{handle.chip.pci}.{handle.partition}",
            "amdsmi_get_gpu_kfd_info": lambda handle: {
                "kfd_id": 7, "node_id": handle.node, "current_partition_id": handle.partition},
            "amdsmi_get_gpu_board_info": lambda handle: {
                "model_number": "N/A", "product_serial": "N/A", "fru_id": "N/A", "product_name": handle.chip.product},
            "amdsmi_get_gpu_asic_info": lambda handle: {"market_name": handle.chip.market, "vendor_id": "0x1002"},
            "amdsmi_get_gpu_driver_info": lambda handle: {"driver_name": "amdgpu", "driver_version": "6.12.12"},
            "amdsmi_get_clock_info": lambda handle, kind: {
                "clk": 1900 + 10 * handle.node if kind == ClkType.GFX else 1300, "min_clk": 500, "max_clk": 2100},
            "amdsmi_get_power_info": power,
            "amdsmi_get_temp_metric": lambda handle, kind, metric: 60 + handle.node,
            "amdsmi_get_violation_status": lambda handle: {
                "active_prochot_thrm": False, "active_ppt_pwr": False, "active_socket_thrm": False,
                "active_vr_thrm": False, "active_hbm_thrm": "N/A", "per_ppt_pwr": 0},
            "amdsmi_get_energy_count": lambda handle: {
                "power": 2_000_000, "energy_accumulator": 2_000_000, "counter_resolution": 15.259, "timestamp": 1},
            "amdsmi_topo_get_link_type": link,
            "amdsmi_topo_get_link_weight": lambda one, other: 15,
            "amdsmi_get_minmax_bandwidth_between_processors": bandwidth,
        }  # fmt: skip
        return SimpleNamespace(AmdSmiException=SmiError, AmdSmiClkType=ClkType, AmdSmiTemperatureType=TemperatureType,
                               AmdSmiTemperatureMetric=TemperatureMetric, AmdSmiIoLinkType=IoLinkType,
                               **{**functions, **answers})  # fmt: skip

    def properties(self, handle: Handle) -> SimpleNamespace:
        """Return what a ROCm torch's get_device_properties has of a device."""
        chip = handle.chip
        return SimpleNamespace(
            name=chip.name, major=9, minor=4, gcnArchName=f"{chip.architecture}:sramecc+:xnack-",
            total_memory=int(chip.memory_gib * 1024**3) // chip.partitions, pci_domain_id=0, pci_bus_id=chip.bus,
            pci_device_id=0, multi_processor_count=chip.compute_units // chip.partitions, warp_size=64,
        )  # fmt: skip

    def be_torchs(self, monkeypatch: pytest.MonkeyPatch, visible: Sequence[int] | None = None) -> None:
        """Let torch say what its ROCm build says on this machine, with only some of the devices visible."""
        seen = self.handles if visible is None else [self.handles[at] for at in visible]

        def properties(device: Any = 0) -> SimpleNamespace:
            index = device.index if isinstance(device, torch.device) else int(device)
            return self.properties(seen[index])

        monkeypatch.setattr(torch.version, "hip", "7.0.51831")
        monkeypatch.setattr(torch.version, "cuda", None)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(seen))
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
        monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda one, other: True)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["gfx90a", "gfx942", "gfx950", "gfx1100"])


def use_amdsmi(monkeypatch: pytest.MonkeyPatch, module: SimpleNamespace | None) -> None:
    """Let this be the amdsmi that is installed, or (None) let there be none; there is no NVML."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", module)


def _write(path: Path, properties: Mapping[str, int]) -> None:
    _text(path, "".join(f"{name} {value}\n" for name, value in properties.items()))


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
