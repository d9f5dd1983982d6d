"""ResNet's 3×3 max pooling with stride 2, whose gradient needs no search.

A pixel of the input lies in one, two or four windows, and which ones follows from whether its row and column are even.
So one program takes a 2×2 block of the input, reads the four windows that can have chosen its pixels, and writes four
gradients; every gradient is read from the cache but once. A general kernel looks up the candidates of each pixel by
itself: ten times slower on an H200 (3.1 ms of a 73 ms step of ResNet-50).

Shapes: B images, H and W even, C channels last in memory. A window's choice is a number 0 to 8, row by row.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from scalescope.train.kernels.devices import triton_takes

try:
    import triton
    import triton.language as tl
except ImportError:  # torch for CPUs comes without
    triton = None

_ELEMENTS = 1024  # of a program: pixels times channels


def max_pool(x: Tensor) -> Tensor:
    """Return max_pool2d(x, 3, stride=2, padding=1): (B, C, H, W) -> (B, C, H/2, W/2)."""
    if x.shape[2] % 2 or x.shape[3] % 2 or not triton_takes(x.device, x.dtype):
        return F.max_pool2d(x, 3, stride=2, padding=1)
    pooled, _ = _max_pool(x)
    return pooled


@torch.library.custom_op("scalescope::max_pool", mutates_args=())
def _max_pool(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the maxima (B, C, H/2, W/2) and which of its window each is, int8."""
    x = x.contiguous(memory_format=torch.channels_last)
    pooled, choice = _empty_outputs(x)
    grid, shape = _launch(x)
    max_pool_forward[grid](x, pooled, choice, pooled.numel(), *shape, BLOCK=_ELEMENTS)
    return pooled, choice


@_max_pool.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return _empty_outputs(x)


@torch.library.custom_op("scalescope::max_pool_gradient", mutates_args=())
def _max_pool_gradient(upstream: Tensor, choice: Tensor) -> Tensor:
    """Return the gradient (B, C, H, W) of what is pooled, from that of the maxima."""
    upstream = upstream.contiguous(memory_format=torch.channels_last)
    gradient = _empty_gradient(upstream)
    grid, shape = _launch(gradient)
    max_pool_backward[grid](upstream, choice, gradient, upstream.numel(), *shape, BLOCK=_ELEMENTS)
    return gradient


@_max_pool_gradient.register_fake
def _(upstream: Tensor, choice: Tensor) -> Tensor:
    return _empty_gradient(upstream)


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])


def _backward(context: torch.autograd.function.FunctionCtx, upstream: Tensor, _: object) -> Tensor:
    (choice,) = context.saved_tensors  # type: ignore[attr-defined]
    return _max_pool_gradient(upstream, choice)


_max_pool.register_autograd(_backward, setup_context=_save)


def _empty_outputs(x: Tensor) -> tuple[Tensor, Tensor]:
    batch, channels, height, width = x.shape
    pooled = _empty(x, (batch, channels, height // 2, width // 2))
    return pooled, torch.empty_like(pooled, dtype=torch.int8)


def _empty_gradient(upstream: Tensor) -> Tensor:
    batch, channels, height, width = upstream.shape
    return _empty(upstream, (batch, channels, 2 * height, 2 * width))


def _empty(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def _launch(large: Tensor) -> tuple[tuple[int], tuple[int, int, int]]:
    """Return the grid, one program for so many elements of the pooled size, and (C, H/2, W/2)."""
    _, channels, height, width = large.shape
    return (-(-large.numel() // 4 // _ELEMENTS),), (channels, height // 2, width // 2)


if triton is not None:

    @triton.jit
    def _place(elements, C, H, W, BLOCK: tl.constexpr):
        """Return this program's elements of the pooled size: their numbers, which exist, and where each lies."""
        number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        pixel = number // C
        return number, number < elements, number % C, pixel % W, (pixel // W) % H, pixel // (W * H)

    @triton.jit
    def max_pool_forward(x, pooled, choice, elements, C, H, W, BLOCK: tl.constexpr):
        """Each element of the output: the largest of its nine, the first of equals, as torch chooses."""
        number, exists, channel, column, row, image = _place(elements, C, H, W, BLOCK)
        best = tl.full([BLOCK], -float("inf"), tl.float32)
        chosen = tl.full([BLOCK], 0, tl.int32)
        for index in tl.static_range(9):
            y = 2 * row + index // 3 - 1
            z = 2 * column + index % 3 - 1
            inside = exists & (y >= 0) & (z >= 0)  # never beyond the far edge, since H and W are even
            value = tl.load(x + ((image * 2 * H + y) * 2 * W + z) * C + channel, mask=inside, other=-float("inf"))
            value = value.to(tl.float32)
            larger = inside & ((value > best) | (value != value))  # a NaN is passed on
            best = tl.where(larger, value, best)
            chosen = tl.where(larger, index, chosen)
        tl.store(pooled + number, best.to(pooled.dtype.element_ty), mask=exists)
        tl.store(choice + number, chosen.to(tl.int8), mask=exists)

    @triton.jit
    def max_pool_backward(upstream, choice, gradient, elements, C, H, W, BLOCK: tl.constexpr):
        """Each 2×2 block of the input: from its own window, the one to the right, the one below, the one beyond."""
        number, exists, channel, column, row, image = _place(elements, C, H, W, BLOCK)
        right = exists & (column + 1 < W)
        below = exists & (row + 1 < H)
        g00 = tl.load(upstream + number, mask=exists, other=0.0).to(tl.float32)
        c00 = tl.load(choice + number, mask=exists, other=-1)
        g01 = tl.load(upstream + number + C, mask=right, other=0.0).to(tl.float32)
        c01 = tl.load(choice + number + C, mask=right, other=-1)
        g10 = tl.load(upstream + number + W * C, mask=below, other=0.0).to(tl.float32)
        c10 = tl.load(choice + number + W * C, mask=below, other=-1)
        g11 = tl.load(upstream + number + W * C + C, mask=right & below, other=0.0).to(tl.float32)
        c11 = tl.load(choice + number + W * C + C, mask=right & below, other=-1)
        even = tl.where(c00 == 4, g00, 0.0)
        to_right = tl.where(c00 == 5, g00, 0.0) + tl.where(c01 == 3, g01, 0.0)
        to_below = tl.where(c00 == 7, g00, 0.0) + tl.where(c10 == 1, g10, 0.0)
        beyond = tl.where(c00 == 8, g00, 0.0) + tl.where(c01 == 6, g01, 0.0)
        beyond += tl.where(c10 == 2, g10, 0.0) + tl.where(c11 == 0, g11, 0.0)
        at = gradient + ((image * 2 * H + 2 * row) * 2 * W + 2 * column) * C + channel
        kind = gradient.dtype.element_ty
        tl.store(at, even.to(kind), mask=exists)
        tl.store(at + C, to_right.to(kind), mask=exists)
        tl.store(at + 2 * W * C, to_below.to(kind), mask=exists)
        tl.store(at + 2 * W * C + C, beyond.to(kind), mask=exists)
