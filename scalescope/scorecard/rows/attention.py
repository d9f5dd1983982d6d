"""Causal attention, forward and backward, by each kernel that is there: whether it is, and its TFLOP/s.

FLOPs as FlashAttention's authors count them: forward 4·B·H·T²·D, half of it under the causal mask; backward 2.5 × as
many, since it computes the scores again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from scalescope.hardware.fp8 import fp8_dtype, fp8_obstacle
from scalescope.records.environment import module_or_none
from scalescope.records.scorecard.row import Conditions, ScorecardRow
from scalescope.scorecard.machine import MachineUnderTest, first_line

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]

_TORCHS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
           "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}  # fmt: skip
#: Packages of their own: FlashAttention 2 (on ROCm by Composable Kernel or Triton), and 3 for Hopper.
_PACKAGES = {"FlashAttention 2": "flash_attn", "FlashAttention 3": "flash_attn_interface"}


@dataclass(frozen=True)
class AttentionShape:
    """B sequences, H heads of width D, T tokens."""

    batch: int
    heads: int
    tokens: int
    width: int

    def flops(self, *, backward: bool) -> float:
        """Return the FLOPs of a causal forward or backward pass."""
        forward = 4.0 * self.batch * self.heads * self.tokens**2 * self.width / 2
        return 2.5 * forward if backward else forward


_SHAPES = {True: AttentionShape(4, 16, 4096, 128), False: AttentionShape(1, 4, 128, 64)}


def measure(machine: MachineUnderTest) -> Iterator[ScorecardRow]:
    """Yield each kernel's forward and backward pass in bf16, and FlashAttention 3's forward pass in fp8."""
    shape = _SHAPES[machine.full]
    for name, backend in _TORCHS.items():
        yield from both_passes(machine, shape, f"torch {name}", by_torch(backend))
    for name, package in _PACKAGES.items():
        attend = _by_package(package)
        if attend is None:
            for way in ("forward", "backward"):
                yield _absent(machine, f"{name} {way}", "bf16", f"{package} is not installed")
        else:
            yield from both_passes(machine, shape, name, attend, heads_first=False)
    yield _fp8(machine, shape)


def both_passes(
    machine: MachineUnderTest, shape: AttentionShape, name: str, attend: Attend, *, heads_first: bool = True
) -> Iterator[ScorecardRow]:
    """Yield a kernel's forward and backward pass; of what fails, and what would have come after it, the reason."""
    left = ["forward", "backward"]
    try:
        query, key, value = (_random(machine, shape, heads_first).requires_grad_() for _ in range(3))
        out = attend(query, key, value)
        gradient = torch.randn_like(out)
        for backward in (False, True):
            work: Callable[[], Any] = (
                (lambda: torch.autograd.grad(out, (query, key, value), gradient, retain_graph=True)) if backward
                else (lambda: attend(query.detach(), key.detach(), value.detach()))
            )  # fmt: skip
            figure = machine.rate(machine.times_s(work), shape.flops(backward=backward) / 1e12)
            yield _row(machine, f"{name} {left.pop(0)}", shape, "bf16", figure)
    except (RuntimeError, NotImplementedError, torch.OutOfMemoryError) as error:
        for way in left:
            yield _absent(machine, f"{name} {way}", "bf16", first_line(error))


def by_torch(backend: SDPBackend) -> Attend:
    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(query, key, value, is_causal=True)

    return attend


def _by_package(package: str) -> Attend | None:
    if find_spec(package) is None:
        return None
    module: Any = module_or_none(package)
    if module is None:
        return None

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = module.flash_attn_func(query, key, value, causal=True)
        first: Tensor = out[0] if isinstance(out, tuple) else out
        return first

    return attend


def _fp8(machine: MachineUnderTest, shape: AttentionShape) -> ScorecardRow:
    what = "FlashAttention 3 forward"
    why = fp8_obstacle() if machine.on_gpu else "a CPU multiplies no fp8"
    attend = _by_package(_PACKAGES["FlashAttention 3"])
    if why is not None or attend is None:
        reason = why or "torch has no attention in fp8, and flash_attn_interface is not installed"
        return _absent(machine, what, "fp8", reason)
    query, key, value = (_random(machine, shape, heads_first=False).to(fp8_dtype()) for _ in range(3))
    try:
        figure = machine.rate(machine.times_s(lambda: attend(query, key, value)), shape.flops(backward=False) / 1e12)
    except (RuntimeError, TypeError) as error:
        return _absent(machine, what, "fp8", first_line(error))
    return _row(machine, what, shape, "fp8", figure)


def _random(machine: MachineUnderTest, shape: AttentionShape, heads_first: bool) -> Tensor:
    middle = (shape.heads, shape.tokens) if heads_first else (shape.tokens, shape.heads)
    return torch.randn(shape.batch, *middle, shape.width, device=machine.device, dtype=torch.bfloat16)


def _row(
    machine: MachineUnderTest, what: str, shape: AttentionShape, precision: str, figure: tuple[float, float, float]
) -> ScorecardRow:
    told = f"{what}, {shape.batch} × {shape.heads} × {shape.tokens} × {shape.width} {precision}"
    conditions = Conditions(precision=precision, batch=shape.batch, context=shape.tokens)
    return machine.row("attention", "attention", told, "TFLOP/s", figure, conditions)


def _absent(machine: MachineUnderTest, what: str, precision: str, reason: str) -> ScorecardRow:
    conditions = Conditions(precision=precision)
    return machine.missing("attention", "attention", f"{what} {precision}", "TFLOP/s", reason, conditions)
