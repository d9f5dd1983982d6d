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

from typing import Any

import torch
import torch._dynamo
from torch import Tensor, nn

from scalescope.train.kernels.devices import triton_takes

try:
    import triton
    import triton.language as tl
except ImportError:  # torch for CPUs comes without
    triton = None

#: Elements of a tile, warps, and programs aimed at, for each kernel; of those tried on an H200 the fastest.
_PLANS = {
    "statistics": (2048, 4, 2112),
    "apply": (4096, 8, 16896),
    "sums": (4096, 8, 1056),
    "gradient": (2048, 4, 8448),
}
_WIDEST = 128  # columns of a tile
_PARTS = 512  # most partial sums of a channel, which one program then adds
_TOTALLED = 16  # columns of such a program
_UNBOUNDED = 65535  # programs along the rows where each writes its own: what CUDA's second dimension holds


def norm_relu(
    norm: nn.BatchNorm2d, x: Tensor, shortcut: Tensor | None = None, shortcut_norm: nn.BatchNorm2d | None = None
) -> Tensor:
    """Return ReLU(norm(x)), of the sum with shortcut or with shortcut_norm(shortcut), all (B, C, H, W).

    As in training: with the batch's statistics, by which the running ones are moved.
    """
    y: Tensor = _norm_relu(*_arguments(norm, x, shortcut, shortcut_norm), False)
    return y


def norm_relu_twice(
    norm: nn.BatchNorm2d, x: Tensor, shortcut: Tensor | None = None, shortcut_norm: nn.BatchNorm2d | None = None
) -> tuple[Tensor, Tensor]:
    """Return the same tensor twice, for two readers: their gradients are added in the kernel, not before it."""
    first, second = _norm_relu(*_arguments(norm, x, shortcut, shortcut_norm), True)
    return first, second


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
    """Its gradient takes the moments' part in, so that they are given without one of their own."""

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


def _empty(like: Tensor) -> Tensor:
    return torch.empty_like(like, memory_format=torch.channels_last)


def _like(values: Tensor, x: Tensor) -> Tensor:
    """Return values in x's type and channels last, also by its strides where one pixel leaves the layout open."""
    return _empty(x).copy_(values)


@torch.library.custom_op("scalescope::batch_moments", mutates_args=("running_mean", "running_variance"))
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
    columns, tile_rows, each, parts, warps = _plan("statistics", rows, channels, _PARTS)
    partial = torch.empty((2, parts, channels), dtype=torch.float32, device=x.device)
    moments = torch.empty((2, channels), dtype=torch.float32, device=x.device)
    batch_norm_statistics[(channels // columns, parts)](
        x, partial, rows, channels, parts, each, ROWS=tile_rows, COLUMNS=columns, num_warps=warps
    )
    batch_norm_moments[(-(-channels // _TOTALLED),)](
        partial, moments, running_mean, running_variance, rows, channels, parts, each, epsilon, momentum,
        PARTS=triton.next_power_of_2(parts), COLUMNS=_TOTALLED, num_warps=8
    )  # fmt: skip
    return moments


@_batch_moments.register_fake
def _(x: Tensor, running_mean: Tensor, running_variance: Tensor, epsilon: float, momentum: float) -> Tensor:
    return x.new_empty((2, x.shape[1]), dtype=_wide(x))


@torch.library.custom_op("scalescope::norm_relu", mutates_args=())
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
    """Return ReLU of x, normed, and the shortcut, if any, normed where it has moments; in x's type."""
    added, normed = shortcut is not None, shortcut_moments is not None
    if not _fits(x):
        total = _normed(x, moments) * _over(weight) + _over(bias)
        if shortcut is not None and shortcut_moments is not None:
            assert shortcut_weight is not None and shortcut_bias is not None
            total += _normed(shortcut, shortcut_moments) * _over(shortcut_weight) + _over(shortcut_bias)
        elif shortcut is not None:
            total += shortcut
        return _like(total.relu(), x)
    x = _last(x)
    y = _empty(x)
    rows, channels = x.numel() // x.shape[1], x.shape[1]
    columns, tile_rows, each, programs, warps = _plan("apply", rows, channels, _UNBOUNDED)
    # where there is no shortcut the kernel reads none: any tensor stands for what it is
    beside = (shortcut_moments, shortcut_weight, shortcut_bias) if normed else (moments, weight, bias)
    batch_norm_apply[(channels // columns, programs)](
        x, x if shortcut is None else _last(shortcut), y, moments, weight, bias, *beside, rows, channels, each,
        ADDED=added, NORMED=normed, ROWS=tile_rows, COLUMNS=columns, num_warps=warps
    )  # fmt: skip
    return y


@_apply.register_fake
def _(
    x: Tensor,
    moments: Tensor,
    weight: Tensor,
    bias: Tensor,
    shortcut: Tensor | None,
    shortcut_moments: Tensor | None,
    shortcut_weight: Tensor | None,
    shortcut_bias: Tensor | None,
) -> Tensor:
    return _empty(x)


@torch.library.custom_op("scalescope::norm_relu_gradient", mutates_args=())
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

    The sums are of the gradient behind ReLU with 1, with x's normed values, and with the shortcut's: the gradients of
    bias and weights. `second` is what a second reader of y hands back.
    """
    added, normed = shortcut is not None, shortcut_moments is not None
    rows, channels = x.numel() // x.shape[1], x.shape[1]
    if not _fits(x):
        return _plain_gradient(
            upstream, second, x, y, moments, weight, shortcut, shortcut_moments, shortcut_weight, rows
        )
    upstream, x = _last(upstream), _last(x)
    second_or_any = upstream if second is None else _last(second)
    shortcut_or_any = _last(shortcut) if shortcut is not None and normed else x
    beside = (shortcut_moments, shortcut_weight) if normed else (moments, weight)
    through = _empty(x) if added else upstream  # without a shortcut it is found again from x
    columns, tile_rows, each, parts, warps = _plan("sums", rows, channels, _PARTS)
    partial = torch.empty((3 if normed else 2, parts, channels), dtype=torch.float32, device=x.device)
    batch_norm_sums[(channels // columns, parts)](
        upstream, second_or_any, x, _last(y), shortcut_or_any, through, partial, moments, weight, bias, beside[0],
        rows, channels, parts, each,
        ADDED=added, NORMED=normed, TWICE=second is not None, ROWS=tile_rows, COLUMNS=columns, num_warps=warps
    )  # fmt: skip
    sums = torch.empty((len(partial), channels), dtype=torch.float32, device=x.device)
    batch_norm_totals[(-(-channels // _TOTALLED), len(partial))](
        partial, sums, parts, channels, PARTS=triton.next_power_of_2(parts), COLUMNS=_TOTALLED, num_warps=8
    )
    dx = _empty(x)
    to_shortcut = _empty(x) if normed else through if added else x.new_empty(0)
    columns, tile_rows, each, programs, warps = _plan("gradient", rows, channels, _UNBOUNDED)
    batch_norm_gradient[(channels // columns, programs)](
        through, second_or_any, x, shortcut_or_any, dx, to_shortcut, moments, weight, bias, *beside, sums,
        rows, channels, each,
        ADDED=added, NORMED=normed, TWICE=second is not None and not added,
        ROWS=tile_rows, COLUMNS=columns, num_warps=warps
    )  # fmt: skip
    return dx, to_shortcut, sums


@_gradient.register_fake
def _(
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
    sums = x.new_empty((2 if shortcut_moments is None else 3, x.shape[1]), dtype=_wide(x))
    return _empty(x), x.new_empty(0) if shortcut is None else _empty(x), sums


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


def _plan(kernel: str, rows: int, channels: int, most: int) -> tuple[int, int, int, int, int]:
    """Return a tile's columns and rows, the rows of a program, programs along the rows (at most so many), and warps.

    A tile's columns divide the channels, so that no lane lies beyond them.
    """
    elements, warps, programs = _PLANS[kernel]
    columns = min(_WIDEST, triton.next_power_of_2(channels))
    while channels % columns:
        columns //= 2
    tile_rows = elements // columns
    along = max(1, min(most, programs // (channels // columns)))
    each = -(-rows // along)
    each = -(-each // tile_rows) * tile_rows
    return columns, tile_rows, each, -(-rows // each), warps


if triton is not None:

    @triton.jit
    def batch_norm_statistics(x, partial, M, C, P, EACH, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        """Write a program's part (2, P, C): its rows' mean, and the sum of squares about it."""
        column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        first = tl.program_id(1) * EACH
        last = tl.minimum(first + EACH, M)
        shift = tl.load(x + first.to(tl.int64) * C + column).to(tl.float32)
        one = tl.zeros([ROWS, COLUMNS], tl.float32)
        two = tl.zeros([ROWS, COLUMNS], tl.float32)
        for start in range(0, EACH, ROWS):
            row = first + start + tl.arange(0, ROWS)
            inside = (row < last)[:, None]
            at = row.to(tl.int64)[:, None] * C + column[None, :]
            value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
            value = tl.where(inside, value - shift[None, :], 0.0)
            one += value
            two += value * value
        count = (last - first).to(tl.float32)
        mean = tl.sum(one, 0) / count
        to = partial + tl.program_id(1) * C + column
        tl.store(to, shift + mean)
        tl.store(to + P * C, tl.sum(two, 0) - count * mean * mean)

    @triton.jit
    def batch_norm_moments(
        partial, moments, running_mean, running_variance, M, C, P, EACH, epsilon, momentum,
        PARTS: tl.constexpr, COLUMNS: tl.constexpr
    ):  # fmt: skip
        """Join the parts' means and squares (Chan et al. 1979), and move the running ones."""
        column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        part = tl.arange(0, PARTS)
        inside = (part < P)[:, None] & (column < C)[None, :]
        at = partial + part[:, None] * C + column[None, :]
        means = tl.load(at, mask=inside, other=0.0)
        squares = tl.load(at + P * C, mask=inside, other=0.0)
        count = tl.maximum(tl.minimum(EACH, M - part * EACH), 0).to(tl.float32)[:, None]
        mean = tl.sum(means * count, 0) / M
        off = means - mean[None, :]
        variance = (tl.sum(squares, 0) + tl.sum(tl.where(inside, count * off * off, 0.0), 0)) / M
        valid = column < C
        tl.store(moments + column, mean, mask=valid)
        tl.store(moments + C + column, 1.0 / tl.sqrt(variance + epsilon), mask=valid)
        old = tl.load(running_mean + column, mask=valid)
        tl.store(running_mean + column, old + momentum * (mean - old), mask=valid)
        old = tl.load(running_variance + column, mask=valid)
        tl.store(running_variance + column, old + momentum * (variance * (M / (M - 1.0)) - old), mask=valid)

    @triton.jit
    def batch_norm_totals(partial, total, P, C, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
        """Add the parts: (kinds, P, C) -> (kinds, C); the second dimension of the grid is the kind."""
        column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        kind = tl.program_id(1)
        part = tl.arange(0, PARTS)
        inside = (part < P)[:, None] & (column < C)[None, :]
        parts = tl.load(partial + (kind * P + part[:, None]) * C + column[None, :], mask=inside, other=0.0)
        tl.store(total + kind * C + column, tl.sum(parts, 0), mask=column < C)

    @triton.jit
    def batch_norm_apply(
        x, shortcut, y, moments, weight, bias, s_moments, s_weight, s_bias, M, C, EACH,
        ADDED: tl.constexpr, NORMED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
    ):  # fmt: skip
        """Write ReLU of the norm, and of what is ADDED to it, NORMED itself or as it is."""
        column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        scale = tl.load(moments + C + column) * tl.load(weight + column)
        shift = tl.load(bias + column) - tl.load(moments + column) * scale
        if NORMED:
            s_scale = tl.load(s_moments + C + column) * tl.load(s_weight + column)
            shift += tl.load(s_bias + column) - tl.load(s_moments + column) * s_scale
        first = tl.program_id(1) * EACH
        last = tl.minimum(first + EACH, M)
        for start in range(0, EACH, ROWS):
            row = first + start + tl.arange(0, ROWS)
            inside = (row < last)[:, None]
            at = row.to(tl.int64)[:, None] * C + column[None, :]
            value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * scale[None, :] + shift[None, :]
            if ADDED:
                more = tl.load(shortcut + at, mask=inside, other=0.0).to(tl.float32)
                if NORMED:
                    more *= s_scale[None, :]
                value += more
            relu = tl.where(value < 0.0, 0.0, value)  # a NaN is passed on, which a maximum would hide
            tl.store(y + at, relu.to(y.dtype.element_ty), mask=inside)

    @triton.jit
    def batch_norm_sums(
        upstream, second, x, y, shortcut, through, partial, moments, weight, bias, s_moments, M, C, P, EACH,
        ADDED: tl.constexpr, NORMED: tl.constexpr, TWICE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
    ):  # fmt: skip
        """Sum a part (2 or 3, P, C) of the gradient behind ReLU, which is written where a shortcut takes it."""
        column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        mean, rate = tl.load(moments + column), tl.load(moments + C + column)
        if not ADDED:
            w, b = tl.load(weight + column), tl.load(bias + column)
        if NORMED:
            s_mean, s_rate = tl.load(s_moments + column), tl.load(s_moments + C + column)
            three = tl.zeros([ROWS, COLUMNS], tl.float32)
        one = tl.zeros([ROWS, COLUMNS], tl.float32)
        two = tl.zeros([ROWS, COLUMNS], tl.float32)
        first = tl.program_id(1) * EACH
        last = tl.minimum(first + EACH, M)
        for start in range(0, EACH, ROWS):
            row = first + start + tl.arange(0, ROWS)
            inside = (row < last)[:, None]
            at = row.to(tl.int64)[:, None] * C + column[None, :]
            d = tl.load(upstream + at, mask=inside, other=0.0).to(tl.float32)
            if TWICE:
                d += tl.load(second + at, mask=inside, other=0.0).to(tl.float32)
            normal = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - mean[None, :]) * rate[None, :]
            if ADDED:
                d = tl.where(tl.load(y + at, mask=inside, other=0.0).to(tl.float32) > 0, d, 0.0)
                tl.store(through + at, d.to(through.dtype.element_ty), mask=inside)
            else:
                d = tl.where(normal * w[None, :] + b[None, :] > 0, d, 0.0)
            one += d
            two += d * normal
            if NORMED:
                s_value = tl.load(shortcut + at, mask=inside, other=0.0).to(tl.float32)
                three += d * ((s_value - s_mean[None, :]) * s_rate[None, :])
        to = partial + tl.program_id(1) * C + column
        tl.store(to, tl.sum(one, 0))
        tl.store(to + P * C, tl.sum(two, 0))
        if NORMED:
            tl.store(to + 2 * P * C, tl.sum(three, 0))

    @triton.jit
    def batch_norm_gradient(
        through, second, x, shortcut, dx, d_shortcut, moments, weight, bias, s_moments, s_weight, sums, M, C, EACH,
        ADDED: tl.constexpr, NORMED: tl.constexpr, TWICE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
    ):  # fmt: skip
        """Write the gradient of x, and that of a shortcut with a norm; without one `through` is not yet behind ReLU."""
        column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        mean, rate = tl.load(moments + column), tl.load(moments + C + column)
        w, b = tl.load(weight + column), tl.load(bias + column)
        one, two = tl.load(sums + column) / M, tl.load(sums + C + column) / M
        if NORMED:
            s_mean, s_rate = tl.load(s_moments + column), tl.load(s_moments + C + column)
            s_w = tl.load(s_weight + column)
            three = tl.load(sums + 2 * C + column) / M
        first = tl.program_id(1) * EACH
        last = tl.minimum(first + EACH, M)
        for start in range(0, EACH, ROWS):
            row = first + start + tl.arange(0, ROWS)
            inside = (row < last)[:, None]
            at = row.to(tl.int64)[:, None] * C + column[None, :]
            d = tl.load(through + at, mask=inside, other=0.0).to(tl.float32)
            if TWICE:
                d += tl.load(second + at, mask=inside, other=0.0).to(tl.float32)
            normal = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - mean[None, :]) * rate[None, :]
            if not ADDED:
                d = tl.where(normal * w[None, :] + b[None, :] > 0, d, 0.0)
            inner = (d - one[None, :] - normal * two[None, :]) * (w * rate)[None, :]
            tl.store(dx + at, inner.to(dx.dtype.element_ty), mask=inside)
            if NORMED:
                s_value = tl.load(shortcut + at, mask=inside, other=0.0).to(tl.float32)
                normal = (s_value - s_mean[None, :]) * s_rate[None, :]
                inner = (d - one[None, :] - normal * three[None, :]) * (s_w * s_rate)[None, :]
                tl.store(d_shortcut + at, inner.to(d_shortcut.dtype.element_ty), mask=inside)
