"""What the data sheets promise, as data with its sources. Torch-free.

TFLOP/s are dense: the vendors' headline figures are often with sparsity, twice as high. Links are GB/s in one direction
of one device to its peers in the node.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

Topology = Literal["switch", "mesh", "pcie"]

_ML_ENGINEERING = "stas00/ml-engineering, compute/accelerator and network (numbered vendor links)"
_DERIVED = f"{_ML_ENGINEERING}; link halved from the vendor's two-way figure"
_AMD = "AMD's product page"
_TRACELENS = "AMD-AGI/TraceLens, TraceLens/Agent/Analysis/utils/arch"


#: Whose peak a step's products are measured by where nobody tells what they run in.
USUAL_PRECISION = "bf16"


@dataclass(frozen=True)
class Achievable:
    """What the vendor itself reaches in matrix products, TFLOP/s: the data sheet's figures stand beside it."""

    bf16: float
    fp16: float
    fp8: float
    source: str

    def tflops(self, precision: str) -> float | None:
        """Return it for bf16 | fp16 | fp8; None for what it was not measured in."""
        return {"bf16": self.bf16, "fp16": self.fp16, "fp8": self.fp8}.get(precision)


@dataclass(frozen=True)
class Peak:
    """One device's data-sheet figures. `fp32_tflops` is of matrix products, by matrix units where these take fp32."""

    device: str
    matches: tuple[str, ...]  # every part must be in the device's name, lower case
    bf16_tflops: float
    fp32_tflops: float
    memory_tb_s: float
    link_gb_s: float | None  # to all peers at once; None: not known
    topology: Topology
    fp16_tflops: float | None = None  # where it differs from bf16
    fp8_tflops: float | None = None
    tf32_tflops: float | None = None
    fp64_tflops: float | None = None  # of matrix products
    peers_gb_s: tuple[float, ...] = ()  # of a mesh: what the links to each peer carry, the widest first
    excludes: tuple[str, ...] = ()  # no part may be in the name: other devices whose names hold this one's
    achievable: Achievable | None = None
    memory_gb: float | None = None
    reduces_in_switch: bool = False  # NVLS: the switch adds up what passes through it
    source: str = _ML_ENGINEERING

    def tflops(self, precision: str) -> float | None:
        """Return the dense peak for fp64 | fp32 | tf32 | bf16 | fp16 | fp8 in TFLOP/s, or None where it has none."""
        return {
            "fp64": self.fp64_tflops,
            "fp32": self.fp32_tflops,
            "tf32": self.tf32_tflops,
            "bf16": self.bf16_tflops,
            "fp16": self.fp16_tflops or self.bf16_tflops,
            "fp8": self.fp8_tflops,
        }.get(precision)

    def one_of(self, partitions: int) -> "Peak":
        """Return the figures of one of a chip's equal partitions, each with its share of the units and the memory.

        What a partition's links carry is not known: partitions of a chip share them, and reach each other inside it.
        """

        def share(figure: float | None) -> float | None:
            return None if figure is None else figure / partitions

        return replace(
            self,
            device=f"{self.device}, {partition_words(partitions)}",
            matches=(*self.matches, partition_words(partitions)),
            bf16_tflops=self.bf16_tflops / partitions,
            fp32_tflops=self.fp32_tflops / partitions,
            memory_tb_s=self.memory_tb_s / partitions,
            memory_gb=share(self.memory_gb),
            fp16_tflops=share(self.fp16_tflops),
            fp8_tflops=share(self.fp8_tflops),
            tf32_tflops=share(self.tf32_tflops),
            fp64_tflops=share(self.fp64_tflops),
            link_gb_s=None,
            peers_gb_s=(),
            achievable=None,
        )


def partition_words(partitions: int) -> str:
    """Return the words in a device's name that say it is one of so many equal partitions of a chip."""
    return f"one of {partitions} partitions"


_MI300X_PEERS, _MI350X_PEERS = (64.0,) * 7, (76.5,) * 7
_MI250X = Peak("MI250X, one of two", ("mi250x",), 191.5, 47.85, 1.64, 350, "mesh", peers_gb_s=(200, 100, 50),
               memory_gb=64)  # fmt: skip
_MI300X = Peak(
    "MI300X", ("mi300x",), 1307, 163.4, 5.3, 448, "mesh", fp8_tflops=2610, tf32_tflops=653.7, fp64_tflops=163.4,
    peers_gb_s=_MI300X_PEERS, achievable=Achievable(708, 654, 1273, f"{_TRACELENS}/MI300X.json"), memory_gb=192,
)  # fmt: skip
_MI325X = replace(
    _MI300X, device="MI325X", matches=("mi325x",), memory_tb_s=6.0, memory_gb=256,
    achievable=Achievable(843, 794, 1519, f"{_TRACELENS}/MI325X.json"),
)  # fmt: skip
_MI300A = Peak("MI300A", ("mi300a",), 980.6, 122.6, 5.3, 384, "mesh", fp8_tflops=1961.2, tf32_tflops=490.3,
               peers_gb_s=(128, 128, 128), memory_gb=128, source=f"{_AMD}; links: arXiv 2508.11298")  # fmt: skip
_MI350X = Peak("MI350X", ("mi350x",), 2300, 144.2, 8.0, 535.5, "mesh", fp8_tflops=4600, peers_gb_s=_MI350X_PEERS,
               memory_gb=288, source=f"{_AMD}; {_ML_ENGINEERING}")  # fmt: skip
_MI355X = Peak("MI355X", ("mi355x",), 2500, 157.3, 8.0, 535.5, "mesh", fp8_tflops=5000, peers_gb_s=_MI350X_PEERS,
               memory_gb=288)  # fmt: skip
_A100 = Peak("A100 SXM 80GB", ("a100", "80gb"), 312, 19.5, 2.0, 300, "switch", tf32_tflops=156, fp64_tflops=19.5,
             memory_gb=80)  # fmt: skip

# AMD's matrix units take fp32 as it is (rocBLAS and hipBLASLt use them), so that its vector rate is no ceiling
_WHOLE: tuple[Peak, ...] = (
    _A100,
    replace(_A100, device="A100 SXM 40GB", matches=("a100", "40gb"), memory_tb_s=1.555, memory_gb=40),
    Peak("H100 SXM", ("h100",), 989, 67, 3.35, 450, "switch", fp8_tflops=1979, tf32_tflops=494.7, fp64_tflops=67,
         memory_gb=80, reduces_in_switch=True),
    Peak("H200", ("h200",), 989, 67, 4.8, 450, "switch", fp8_tflops=1979, tf32_tflops=494.7, fp64_tflops=67,
         memory_gb=141, reduces_in_switch=True),
    Peak("B200", ("b200",), 2250, 80, 8.0, 900, "switch", fp8_tflops=4500, memory_gb=180, reduces_in_switch=True),
    Peak("MI100", ("mi100",), 92.3, 46.1, 1.23, 138, "mesh", fp16_tflops=184.6, peers_gb_s=(46, 46, 46), memory_gb=32,
         source=f"{_DERIVED}; {_AMD}"),
    Peak("MI210", ("mi210",), 181, 45.3, 1.6, 150, "mesh", peers_gb_s=(50, 50, 50), memory_gb=64,
         source=f"{_DERIVED}; {_AMD}"),
    # torch sees an MI250X as two devices, so each has half of the data sheet's figures
    _MI250X,
    replace(_MI250X, device="MI250, one of two", matches=("mi250",), bf16_tflops=181, fp32_tflops=45.25),
    Peak("RX 7900 XTX", ("7900 xtx",), 122.8, 61.4, 0.96, 31, "pcie", memory_gb=24, source=_DERIVED),
    Peak("RX 7900 XT", ("7900 xt",), 103.2, 51.6, 0.8, 31, "pcie", memory_gb=20, source=_AMD),
    Peak("RX 9070 XT", ("9070 xt",), 194.6, 48.7, 0.64, 63, "pcie", fp8_tflops=389, memory_gb=16, source=_DERIVED),
    Peak("RX 9070", ("9070",), 144.5, 36.1, 0.64, 63, "pcie", fp8_tflops=289, memory_gb=16, excludes=("gre",),
         source=_AMD),
    Peak("RX 9060 XT", ("9060 xt",), 102.6, 25.6, 0.32, 63, "pcie", fp8_tflops=205, memory_gb=16, source=_AMD),
    Peak("RTX 4090", ("4090",), 165.2, 82.6, 1.008, 31, "pcie", fp8_tflops=330.3, memory_gb=24,
         excludes=("laptop", "4090 d")),
)  # fmt: skip

#: Chips that can be split, each with the numbers of equal partitions that the driver makes of it.
SPLIT: tuple[tuple[Peak, tuple[int, ...]], ...] = (
    (_MI300X, (2, 4, 8)),
    (_MI325X, (2, 4, 8)),
    (_MI300A, (3, 6)),
    (_MI350X, (2, 4, 8)),
    (_MI355X, (2, 4, 8)),
)

# the more telling name first: "MI300X, one of 8 partitions" would match "MI300X" too
PEAKS: tuple[Peak, ...] = (
    *(chip.one_of(count) for chip, counts in SPLIT for count in counts),
    *(chip for chip, _ in SPLIT),
    *_WHOLE,
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
            if any(part in name for part in peak.excludes):
                return None
            return peak
    return None
