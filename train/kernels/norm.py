"""Batch norm, what is added to it and ReLU, in as few passes over memory as they need; channels last.

Norms are nearly half of ResNet-50's step, all of it reading and writing activations. Compiled by Inductor they take
36 ms of 66 ms on an H200 at 512 images, and these kernels 29 ms, mostly by what they leave out:

* what ReLU let through is told from x again, or from the block's output, and never written on its own;
* a block's output is read twice, by the next block and by the shortcut around it. Its two gradients come back
  separately (`norm_relu_twice`), and are added while they are read for the sums;
* a block whose shortcut has a norm of its own computes both norms, their sum and their gradients in the same passes.

Statistics are those of the rank's own samples, and are taken about the first row that each program reads, so that a
mean far from zero costs no precision. All sums are fp32. Where Triton builds nothing, torch computes the same.

Shapes: x (B, C, H, W) with M = B·H·W rows of C channels; moments (2, C), mean and 1/√(variance + ε).
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
import torch._dynamo
from torch import Tensor, nn

from scalescope.train.kernels.devices import triton_takes

try:
    import triton
    from torch.library import wrap_triton

    from scalescope.train.kernels.norm_kernels import (
        PARTS,
        TOTALLED,
        UNBOUNDED,
        batch_norm_apply,
        batch_norm_gradient,
        batch_norm_moments,
        batch_norm_statistics,
        batch_norm_sums,
        batch_norm_totals,
        plan,
    )
except ImportError:  # torch for CPUs comes without
    triton = None


P = ParamSpec("P")
T = TypeVar("T")


def fuses_norms(kind: str, x: Tensor) -> bool:
    """Return whether the norms of x and its like are to be fused: by `auto` where they are compiled with the kernels.

    Uncompiled, the host launches them one by one, and nothing has shown that they pay.
    """
    return kind == "fused" or (kind == "auto" and torch.compiler.is_compiling() and _fits(x))


def norm_relu(
    norm: nn.BatchNorm2d, x: Tensor, shortcut: Tensor | None = None, shortcut_norm: nn.BatchNorm2d | None = None
) -> Tensor:
    """Return ReLU(norm(x)), of the sum with shortcut or with shortcut_norm(shortcut), all (B, C, H, W).

    As in training: with the batch's statistics, by which the running ones are moved.
    """
    return _images(_norm_relu(*_arguments(norm, x, shortcut, shortcut_norm), False), x)


def norm_relu_twice(
    norm: nn.BatchNorm2d, x: Tensor, shortcut: Tensor | None = None, shortcut_norm: nn.BatchNorm2d | None = None
) -> tuple[Tensor, Tensor]:
    """Return the same tensor twice, for two readers: their gradients are added in the kernel, not before it."""
    first, second = _norm_relu(*_arguments(norm, x, shortcut, shortcut_norm), True)
    return _images(first, x), _images(second, x)


def _arguments(
    norm: nn.BatchNorm2d, x: Tensor, shortcut: Tensor | None, shortcut_norm: nn.BatchNorm2d | None
) -> tuple[Tensor | None, ...]:
    """Return what `_NormRelu.forward` takes, but for its last."""
    own = (x, norm.weight, norm.bias, _moments(norm, x), shortcut)
    if shortcut is None or shortcut_norm is None:
        return (*own, None, None, None)
    return (*own, shortcut_norm.weight, shortcut_norm.bias, _moments(shortcut_norm, shortcut))


def _moments(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Return the batch's moments (2, C), and move the norm's running ones."""
    if x.numel() == x.shape[1]:
        raise ValueError(f"batch norm: one value a channel has no variance, in {tuple(x.shape)}")
    assert norm.running_mean is not None and norm.running_var is not None and norm.num_batches_tracked is not None
    assert norm.momentum is not None
    norm.num_batches_tracked.add_(1)
    return _batch_moments(x.detach(), norm.running_mean, norm.running_var, norm.eps, norm.momentum)


class _NormRelu(torch.autograd.Function):
    """ReLU of the norms' sum, as rows (B, H·W, C): see `_rows`.

    Its gradient takes the moments' part in, so that they are given without one of their own.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        moments: Tensor,
        shortcut: Tensor | None,
        shortcut_weight: Tensor | None,
        shortcut_bias: Tensor | None,
        shortcut_moments: Tensor | None,
        twice: bool,
    ) -> Tensor | tuple[Tensor, Tensor]:
        y = _apply(x, moments, weight, bias, shortcut, shortcut_moments, shortcut_weight, shortcut_bias)
        ctx.set_materialize_grads(False)
        # of a shortcut without a norm nothing is read again: what stands for it is y, which tells ReLU's mask
        kept = shortcut if shortcut is None or shortcut_moments is not None else y
        ctx.save_for_backward(x, y, moments, weight, bias, kept, shortcut_moments, shortcut_weight)
        return (y, y.view_as(y)) if twice else y

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        x, y, moments, weight, bias, kept, shortcut_moments, shortcut_weight = ctx.saved_tensors
        first, *rest = [one for one in upstream if one is not None]
        dx, to_shortcut, sums = _gradient(
            first, rest[0] if rest else None, x, y, moments, weight, bias, kept, shortcut_moments, shortcut_weight
        )
        of_shortcut: tuple[Tensor | None, ...] = (None, None, None)
        if kept is not None:
            of_shortcut = (to_shortcut, None, None)
        if shortcut_moments is not None:  # its bias gets what the other's does, as a tensor of its own
            of_shortcut = (to_shortcut, sums[2], sums[0].clone())
        return dx, sums[1], sums[0], None, *of_shortcut, None, None


def _norm_relu(*arguments: Tensor | bool | None) -> Any:
    return _NormRelu.apply(*arguments)  # type: ignore[no-untyped-call]


torch._dynamo.allow_in_graph(_norm_relu)  # traced below autograd, as a custom operator's gradient is


def _fits(x: Tensor) -> bool:
    """Whether the kernels take this tensor: their arithmetic is fp32."""
    return x.dtype is not torch.float64 and triton_takes(x.device, x.dtype)


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _rows(like: Tensor) -> Tensor:
    """Return memory for what is of that (B, C, H, W) and type, as rows (B, H·W, C).

    Of what has four dimensions Inductor takes the second for channels, in a model with convolutions, and lays it out
    by that what a graph hands on or keeps: memory made as (B, C, H, W), by `empty_like` in channels last or by strides,
    and as (B, H, W, C) too, it writes once more before or behind a kernel (docs/performance.md has what each took).

    What a graph gives back has to be rows until autograd has seen it, and is turned behind `_NormRelu`: where a graph
    ends behind a block (FSDP2's blocks, DDP's buckets), autograd takes the block's two outputs for views of the first,
    and a compiler that knew that one as a view itself could not make the other again.
    """
    batch, channels, height, width = like.shape
    return like.new_empty((batch, height * width, channels))


def _images(rows: Tensor, like: Tensor) -> Tensor:
    """Return rows (B, H·W, C) as what they are of: (B, C, H, W) as `like`, channels last."""
    return rows.unflatten(1, like.shape[2:]).permute(0, 3, 1, 2)


def _like(values: Tensor, x: Tensor) -> Tensor:
    """Return values in x's type and channels last, also by its strides where one pixel leaves the layout open."""
    return torch.empty_like(x, memory_format=torch.channels_last).copy_(values)


def _operator(name: str, *mutated: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return the decorator that makes a torch operator of a function, which a compiler looks into where Triton is.

    What it finds there are the launches: it starts them as its own, and takes the memory of their outputs from its own
    plan. Of an operator that it does not look into every launch is Python's, 300 a step of ResNet-50, and the host was
    not always ahead of an H200: single steps took up to 165 ms of 58.
    """

    def made(function: Callable[P, T]) -> Callable[P, T]:
        if triton is not None:
            return torch.library.triton_op(name, function, mutates_args=mutated)
        operator = torch.library.custom_op(name, function, mutates_args=mutated)
        operator.register_fake(function)  # torch's own operations, which tell shapes and strides as they are
        return operator

    return made


@_operator("scalescope::batch_moments", "running_mean", "running_variance")
def _batch_moments(
    x: Tensor, running_mean: Tensor, running_variance: Tensor, epsilon: float, momentum: float
) -> Tensor:
    """Return the moments (2, C); move the running mean, and the running variance by M/(M-1) times the batch's."""
    rows, channels = x.numel() // x.shape[1], x.shape[1]
    if not _fits(x):
        variance, mean = torch.var_mean(x.to(_wide(x)), (0, 2, 3), correction=0)
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_variance.lerp_((variance * (rows / (rows - 1))).to(running_variance.dtype), momentum)
        return torch.stack([mean, (variance + epsilon).rsqrt()])
    x = _last(x)
    columns, tile_rows, each, parts, warps = plan("statistics", rows, channels, PARTS)
    partial = torch.empty((2, parts, channels), dtype=torch.float32, device=x.device)
    moments = torch.empty((2, channels), dtype=torch.float32, device=x.device)
    wrap_triton(batch_norm_statistics)[(channels // columns, parts)](
        x, partial, rows, channels, parts, each, ROWS=tile_rows, COLUMNS=columns, num_warps=warps
    )
    wrap_triton(batch_norm_moments)[(-(-channels // TOTALLED),)](
        partial, moments, running_mean, running_variance, rows, channels, parts, each, epsilon, momentum,
        PARTS=triton.next_power_of_2(parts), COLUMNS=TOTALLED, num_warps=8
    )  # fmt: skip
    return moments


@_operator("scalescope::norm_relu")
def _apply(
    x: Tensor,
    moments: Tensor,
    weight: Tensor,
    bias: Tensor,
    shortcut: Tensor | None,
    shortcut_moments: Tensor | None,
    shortcut_weight: Tensor | None,
    shortcut_bias: Tensor | None,
) -> Tensor:
    """Return ReLU of x, normed, and the shortcut, if any, normed where it has moments: rows in x's type."""
    added, normed = shortcut is not None, shortcut_moments is not None
    if not _fits(x):
        total = _normed(x, moments) * _over(weight) + _over(bias)
        if shortcut is not None and shortcut_moments is not None:
            assert shortcut_weight is not None and shortcut_bias is not None
            total += _normed(shortcut, shortcut_moments) * _over(shortcut_weight) + _over(shortcut_bias)
        elif shortcut is not None:
            total += shortcut
        return _rows(x).copy_(total.relu().flatten(2).mT)
    x = _last(x)
    rows, channels = x.numel() // x.shape[1], x.shape[1]
    y = _rows(x)
    columns, tile_rows, each, programs, warps = plan("apply", rows, channels, UNBOUNDED)
    # where there is no shortcut the kernel reads none: any tensor stands for what it is
    beside = (shortcut_moments, shortcut_weight, shortcut_bias) if normed else (moments, weight, bias)
    wrap_triton(batch_norm_apply)[(channels // columns, programs)](
        x, x if shortcut is None else _last(shortcut), y, moments, weight, bias, *beside, rows, channels, each,
        ADDED=added, NORMED=normed, ROWS=tile_rows, COLUMNS=columns, num_warps=warps
    )  # fmt: skip
    return y


@_operator("scalescope::norm_relu_gradient")
def _gradient(
    upstream: Tensor,
    second: Tensor | None,
    x: Tensor,
    y: Tensor,
    moments: Tensor,
    weight: Tensor,
    bias: Tensor,
    shortcut: Tensor | None,
    shortcut_moments: Tensor | None,
    shortcut_weight: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x and of the shortcut (empty without one), and the sums (2 or 3, C).

    Upstream, `second` (what a second reader of y hands back) and y are rows, and so is what stands for a shortcut
    without a norm. The sums are of the gradient behind ReLU with 1, with x's normed values, and with the shortcut's:
    the gradients of bias and weights.
    """
    added, normed = shortcut is not None, shortcut_moments is not None
    rows, channels = x.numel() // x.shape[1], x.shape[1]
    if not _fits(x):
        return _plain_gradient(
            _images(upstream, x), None if second is None else _images(second, x), x, _images(y, x), moments, weight,
            shortcut, shortcut_moments, shortcut_weight, rows
        )  # fmt: skip
    upstream, x = upstream.contiguous(), _last(x)
    second_or_any = upstream if second is None else second.contiguous()
    shortcut_or_any = _last(shortcut) if shortcut is not None and normed else x
    beside = (shortcut_moments, shortcut_weight) if normed else (moments, weight)
    through = _rows(x) if added else upstream  # without a shortcut it is found again from x
    columns, tile_rows, each, parts, warps = plan("sums", rows, channels, PARTS)
    partial = torch.empty((3 if normed else 2, parts, channels), dtype=torch.float32, device=x.device)
    wrap_triton(batch_norm_sums)[(channels // columns, parts)](
        upstream, second_or_any, x, y, shortcut_or_any, through, partial, moments, weight, bias, beside[0],
        rows, channels, parts, each,
        ADDED=added, NORMED=normed, TWICE=second is not None, ROWS=tile_rows, COLUMNS=columns, num_warps=warps
    )  # fmt: skip
    sums = torch.empty((len(partial), channels), dtype=torch.float32, device=x.device)
    wrap_triton(batch_norm_totals)[(-(-channels // TOTALLED), len(partial))](
        partial, sums, parts, channels, PARTS=triton.next_power_of_2(parts), COLUMNS=TOTALLED, num_warps=8
    )
    dx = _rows(x)
    to_shortcut = _rows(x) if normed else through if added else x.new_empty(0)
    columns, tile_rows, each, programs, warps = plan("gradient", rows, channels, UNBOUNDED)
    wrap_triton(batch_norm_gradient)[(channels // columns, programs)](
        through, second_or_any, x, shortcut_or_any, dx, to_shortcut, moments, weight, bias, *beside, sums,
        rows, channels, each,
        ADDED=added, NORMED=normed, TWICE=second is not None and not added,
        ROWS=tile_rows, COLUMNS=columns, num_warps=warps
    )  # fmt: skip
    return _images(dx, x), _images(to_shortcut, x) if added else to_shortcut, sums


def _over(channels: Tensor) -> Tensor:
    """Return (C,) as it stands beside (B, C, H, W)."""
    return channels[:, None, None]


def _normed(x: Tensor, moments: Tensor) -> Tensor:
    return (x.to(_wide(x)) - _over(moments[0])) * _over(moments[1])


def _plain_gradient(
    upstream: Tensor,
    second: Tensor | None,
    x: Tensor,
    y: Tensor,
    moments: Tensor,
    weight: Tensor,
    shortcut: Tensor | None,
    shortcut_moments: Tensor | None,
    shortcut_weight: Tensor | None,
    rows: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same with torch's own operations, for devices without the kernels."""
    wide = upstream.to(_wide(x)) if second is None else upstream.to(_wide(x)) + second
    through = torch.where(y > 0, wide, 0)
    total = through.sum((0, 2, 3))

    def behind(values: Tensor, its_moments: Tensor, its_weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return a norm's input gradient, and its weight's."""
        normal = _normed(values, its_moments)
        product = (through * normal).sum((0, 2, 3))
        inner = through - _over(total) / rows - normal * _over(product) / rows
        return _like(inner * _over(its_weight * its_moments[1]), x), product

    dx, product = behind(x, moments, weight)
    if shortcut is None:
        return dx, x.new_empty(0), torch.stack([total, product])
    if shortcut_moments is None or shortcut_weight is None:
        return dx, _like(through, x), torch.stack([total, product])
    to_shortcut, shortcut_product = behind(shortcut, shortcut_moments, shortcut_weight)
    return dx, to_shortcut, torch.stack([total, product, shortcut_product])
