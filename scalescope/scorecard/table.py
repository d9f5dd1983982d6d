"""The rows that there are, in the order in which they are measured; a row's module is loaded when it is measured."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from scalescope.records.scorecard.row import ScorecardRow

if TYPE_CHECKING:  # it loads torch
    from scalescope.scorecard.machine import MachineUnderTest

Measure = Callable[["MachineUnderTest"], Iterator[ScorecardRow]]


@dataclass(frozen=True)
class RowKind:
    """One row of the scorecard: what it measures, where, and which of SuperBench's benchmarks corresponds to it."""

    name: str
    says: str
    module: str
    superbench: str | None = None

    def measure(self, machine: "MachineUnderTest") -> Iterator[ScorecardRow]:
        """Yield the row's figures, each as it is measured."""
        return cast(Measure, import_module(self.module).measure)(machine)


_ROWS = "scalescope.scorecard.rows"

ROWS = {kind.name: kind for kind in (
    RowKind("matmul", "matrix products, TFLOP/s by precision", f"{_ROWS}.matmul", "gemm-flops"),
    RowKind("memory", "device memory, TB/s of a copy and a triad", f"{_ROWS}.memory", "mem-bw/D2D_Mem_BW"),
    RowKind("attention", "attention's kernels, TFLOP/s forward and backward", f"{_ROWS}.attention"),
    RowKind("launch", "one kernel's launch, µs", f"{_ROWS}.launch", "kernel-launch/wall_overhead"),
    RowKind("host_copy", "copies between host and device, GB/s", f"{_ROWS}.host_copy",
            "mem-bw/H2D_Mem_BW, D2H_Mem_BW"),
    RowKind("all_reduce", "all-reduce by GPU count, GB/s and µs", f"{_ROWS}.all_reduce", "nccl-bw, rccl-bw/allreduce"),
    RowKind("resnet", "ResNet-50 training, images/s and J", f"{_ROWS}.resnet", "resnet_models/pytorch-resnet50"),
    RowKind("gpt", "GPT-2 124M training, tokens/s and J", f"{_ROWS}.gpt", "gpt_models/pytorch-gpt2-small"),
    RowKind("decode", "decoding one sequence, tokens/s by the memory's speed", f"{_ROWS}.decode"),
)}  # fmt: skip
