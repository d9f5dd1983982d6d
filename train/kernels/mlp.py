"""A transformer's MLP with GELU inside its matrix products: computed where they write, and its gradient likewise.

Left to the compiler, GELU reads what the first product wrote and writes as much again; its gradient reads two such
tensors and writes a third. Of GPT-2 124M at 64 × 1,024 tokens these hold 400 MB each. Here the first product writes
both what GELU takes and what it gives, and the backward pass's product by the second weight writes the gradient of what
GELU takes. cuBLASLt has such products (Hopper); elsewhere torch computes the same.

GELU is the tanh form. Shapes: M rows, C width, N inner units.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scalescope.train.kernels.cublaslt import has_gelu_products, linear_gelu, product_gelu_gradient

#: Elements of what GELU takes, from which on `auto` fuses it. The host calls each product by itself, which takes it
#: longer than what the compiler would launch: of 8,192 rows of 3,072 the step is 4% longer, of 16,384 and 32,768 as
#: long, of 65,536 2% shorter.
_LEAST = 1 << 27


def fuses_gelu(kind: str, x: Tensor, first: nn.Module, second: nn.Module) -> bool:
    """Return whether GELU is to be computed within the products of two linear layers, whose input x is.

    By `auto` where they are compiled for such a GPU in bf16, and large. Layers are left alone that are not torch's
    (fp8's), and those on which something hangs that runs when they are called (what gathers or slices parameters).
    """
    if kind == "torch" or not (_is_plain(first) and _is_plain(second)):
        return False
    if kind == "fused":
        return True
    large = x.numel() // x.shape[-1] * len(cast(nn.Linear, first).weight) >= _LEAST
    return torch.compiler.is_compiling() and large and _is_bf16(x) and has_gelu_products(x.device)


def mlp(x: Tensor, first: nn.Linear, second: nn.Linear) -> Tensor:
    """Return second(GELU(first(x))): x (..., C) -> (..., C), in autocast's type where there is autocast."""
    dtype = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
    weights = [tensor.to(dtype) for tensor in (first.weight, first.bias, second.weight, second.bias)]
    rows = x.reshape(-1, x.shape[-1]).to(dtype)  # (M, C)
    activated, kept = _first(rows, weights[0], weights[1])
    return _second(activated, kept, weights[2], weights[3]).view_as(x)


def _is_plain(layer: nn.Module) -> bool:
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return type(layer) is nn.Linear and not any(hooks)


def _is_bf16(x: Tensor) -> bool:
    kind = x.device.type
    return (torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype) is torch.bfloat16


def _fits(x: Tensor) -> bool:
    return x.dtype is torch.bfloat16 and has_gelu_products(x.device)


@torch.library.custom_op("scalescope::linear_gelu", mutates_args=())
def _first(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return GELU(y) and y = x·weightᵀ + bias, (M, N) each: x (M, C), weight (N, C), bias (N,).

    The second alone has a gradient: `_second` takes both, and gives it back for what GELU took.
    """
    if _fits(x) and (both := linear_gelu(x.contiguous(), weight.contiguous(), bias.contiguous())) is not None:
        return both
    kept = F.linear(x, weight, bias)
    return F.gelu(kept, approximate="tanh"), kept


@_first.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(len(x), len(weight)), x.new_empty(len(x), len(weight))


def _save_first(
    ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]
) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[0])
    ctx.save_for_backward(inputs[0], inputs[1])


def _first_backward(
    context: torch.autograd.function.FunctionCtx, _: object, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    x, weight = context.saved_tensors  # type: ignore[attr-defined]
    return gradient @ weight, gradient.t() @ x, gradient.sum(0)


@torch.library.custom_op("scalescope::linear_after_gelu", mutates_args=())
def _second(activated: Tensor, kept: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return activated·weightᵀ + bias, (M, C): activated and kept (M, N) of `_first`, weight (C, N), bias (C,)."""
    return F.linear(activated, weight, bias)


@_second.register_fake
def _(activated: Tensor, kept: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return activated.new_empty(len(activated), len(weight))


def _save_second(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], inputs[1], inputs[2])


def _second_backward(
    context: torch.autograd.function.FunctionCtx, gradient: Tensor
) -> tuple[None, Tensor, Tensor, Tensor]:
    activated, kept, weight = context.saved_tensors  # type: ignore[attr-defined]
    return None, _gradient(gradient, weight, kept), gradient.t() @ activated, gradient.sum(0)


@torch.library.custom_op("scalescope::product_gelu_gradient", mutates_args=())
def _gradient(gradient: Tensor, weight: Tensor, kept: Tensor) -> Tensor:
    """Return (gradient·weight) × GELU′(kept), (M, N): gradient (M, C), weight (C, N), kept (M, N)."""
    if _fits(gradient):
        fused = product_gelu_gradient(gradient.contiguous(), weight.contiguous(), kept.contiguous())
        if fused is not None:
            return fused
    return torch.ops.aten.gelu_backward(gradient @ weight, kept, approximate="tanh")


@_gradient.register_fake
def _(gradient: Tensor, weight: Tensor, kept: Tensor) -> Tensor:
    return torch.empty_like(kept)


_first.register_autograd(_first_backward, setup_context=_save_first)
_second.register_autograd(_second_backward, setup_context=_save_second)
