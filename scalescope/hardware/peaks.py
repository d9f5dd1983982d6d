"""What the data sheets promise, as data with its sources. Torch-free.

TFLOP/s are dense: the vendors' headline figures are often with sparsity, twice as high. Links are GB/s in one direction
of one device to its peers in the node; `pair_gb_s` is one edge of a full mesh.
"""

import re
from dataclasses import dataclass
from typing import Literal

Topology = Literal["switch", "mesh", "pcie"]

_ML_ENGINEERING = "stas00/ml-engineering, compute/accelerator and network (numbered vendor links)"
_DERIVED = f"{_ML_ENGINEERING}; link halved from the vendor's two-way figure"


@dataclass(frozen=True)
class Peak:
    """One device's data-sheet figures."""

    device: str
    matches: tuple[str, ...]  # every part must be in the device's name, lower case
    bf16_tflops: float
    fp32_tflops: float
    memory_tb_s: float
    link_gb_s: float
    topology: Topology
    fp16_tflops: float | None = None  # where it differs from bf16
    fp8_tflops: float | None = None
    tf32_tflops: float | None = None
    pair_gb_s: float | None = None
    source: str = _ML_ENGINEERING

    def tflops(self, precision: str) -> float | None:
        """Return the dense peak for fp32 | tf32 | bf16 | fp16 | fp8 in TFLOP/s, or None where it has none."""
        return {
            "fp32": self.fp32_tflops,
            "tf32": self.tf32_tflops,
            "bf16": self.bf16_tflops,
            "fp16": self.fp16_tflops or self.bf16_tflops,
            "fp8": self.fp8_tflops,
        }.get(precision)


# the more telling name first: "H100 PCIe" would match "H100" too
PEAKS: tuple[Peak, ...] = (
    Peak("A100 SXM 80GB", ("a100",), 312, 19.5, 2.0, 300, "switch", tf32_tflops=156),
    Peak("H100 SXM", ("h100",), 989, 67, 3.35, 450, "switch", fp8_tflops=1979, tf32_tflops=494.7),
    Peak("H200", ("h200",), 989, 67, 4.8, 450, "switch", fp8_tflops=1979, tf32_tflops=494.7),
    Peak("B200", ("b200",), 2250, 80, 8.0, 900, "switch", fp8_tflops=4500),
    Peak("MI100", ("mi100",), 92.3, 23.1, 1.23, 138, "mesh", fp16_tflops=184.6, pair_gb_s=46, source=_DERIVED),
    Peak("MI210", ("mi210",), 181, 22.6, 1.6, 150, "mesh", pair_gb_s=50, source=_DERIVED),
    # torch sees an MI250X as two devices, so each has half of the data sheet's figures
    Peak("MI250X, one of two", ("mi250",), 191.5, 23.95, 1.64, 350, "mesh", pair_gb_s=50),
    Peak("MI300X", ("mi300x",), 1307, 163.4, 5.3, 448, "mesh", fp8_tflops=2610, pair_gb_s=64),
    Peak("MI325X", ("mi325x",), 1307, 163.4, 6.0, 448, "mesh", fp8_tflops=2610, pair_gb_s=64),
    Peak("MI355X", ("mi355x",), 2500, 157.3, 8.0, 535.5, "mesh", fp8_tflops=5000, pair_gb_s=76.5),
    Peak("RX 7900 XTX", ("7900 xtx",), 122.8, 61.4, 0.96, 31, "pcie", source=_DERIVED),
    Peak("RX 9070 XT", ("9070 xt",), 194.6, 48.7, 0.64, 63, "pcie", fp8_tflops=389, source=_DERIVED),
    Peak("RTX 4090", ("4090",), 165.2, 82.6, 1.008, 31, "pcie", fp8_tflops=330.3),
)


def find_peak(device_name: str) -> Peak | None:
    """Return the figures of the device with this name, as torch or the driver spells it; None where it is not listed.

    A PCIe card of a listed family is not the SXM part, and is not guessed at.
    """
    name = device_name.lower()
    for peak in PEAKS:
        # not after a letter: a GH200 or GB200 is another machine
        if all(re.search(rf"(?<![a-z]){re.escape(part)}", name) for part in peak.matches):
            if peak.topology == "switch" and ("pcie" in name or "nvl" in name):
                return None
            return peak
    return None


def link_ceiling_gb_s(peak: Peak, group_size: int) -> tuple[float, str]:
    """Return the bus bandwidth that the links of one node allow a ring over `group_size` devices, and what it assumes.

    Switch: every device has its whole link to any peer, whatever the group. Mesh: only the edges to the group's own
    members carry, (n − 1) × pair. NVLS (reduction inside the switch) may exceed this: 2(n − 1)/(n + 1) × link.
    """
    if peak.topology == "mesh" and peak.pair_gb_s is not None:
        return (group_size - 1) * peak.pair_gb_s, f"full mesh, {group_size - 1} × {peak.pair_gb_s:g} GB/s"
    if peak.topology == "switch":
        return peak.link_gb_s, f"ring through the switch, {peak.link_gb_s:g} GB/s a device"
    return peak.link_gb_s, f"PCIe, {peak.link_gb_s:g} GB/s a device"
