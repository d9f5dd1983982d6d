"""Softmax cross entropy over a large vocabulary, in two passes over the logits instead of six.

The step of a small GPT spends more time on the loss than on any of its layers: 64 samples of 1,024 tokens have 6.6 GB
of bf16 logits. Left to autograd they are read for their maximum, for the sum, for the loss and again for the gradient.
Here one kernel reads a row from memory, sums it, reads it again from the cache, and writes its gradient: what the
backward pass needs exists by the end of the forward pass, and is multiplied straight into the two matrix products.

The arithmetic within a row is fp32. Shapes: M rows (samples times tokens), C width, V vocabulary.
"""

import math
import warnings

import torch
from torch import Tensor
from torch.nn import functional as F

from scalescope.train.kernels.devices import triton_takes

try:
    import triton
    import triton.language as tl

    _LOG2E = tl.constexpr(math.log2(math.e))
    _LN2 = tl.constexpr(math.log(2))
except ImportError:  # torch for CPUs comes without
    triton = None

# the backward pass begins with a product, in a thread of its own: torch makes the context for it, and says so
warnings.filterwarnings("ignore", message="Attempting to run cuBLAS, but there was no current CUDA context")

IGNORED = -100  # torch's: such a target adds nothing to the mean
_BLOCK = 8192  # elements of a row at a time
_WARPS = 16
_EIGHTS = 1024  # groups of a row's elements at a time, of `_WIDTH` neighbours each
_WIDTH = 8
_EIGHTS_WARPS = 32


def can_fuse(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `linear_cross_entropy` has its kernel: bf16 on a GPU. (fp16's gradients would vanish unscaled.)"""
    return dtype is torch.bfloat16 and triton_takes(device, dtype)


def linear_cross_entropy(x: Tensor, weight: Tensor, targets: Tensor, by_eights: bool = False) -> Tensor:
    """Return the mean cross entropy in nats of logits x·weightᵀ: x (M, C), weight (V, C), targets (M,) -> ().

    Rows whose target is IGNORED count for nothing; without any other the loss is 0. `by_eights` chooses the kernel that
    rescales a sum once for eight logits, not for each.
    """
    loss, _ = _linear_cross_entropy(x, weight, targets, by_eights)
    return loss


@torch.library.custom_op("scalescope::linear_cross_entropy", mutates_args=())
def _linear_cross_entropy(x: Tensor, weight: Tensor, targets: Tensor, by_eights: bool) -> tuple[Tensor, Tensor]:
    """Return the mean loss () in fp32, and its gradient with respect to the logits (M, V) in their type."""
    logits = x @ weight.t()  # (M, V)
    counted = (targets != IGNORED).sum().clamp(min=1)  # stays on the device
    if not can_fuse(logits.device, logits.dtype):
        return _plain(logits, targets, counted)
    losses = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    scale = counted.reciprocal()
    if by_eights:
        cross_entropy_eights[(len(logits),)](
            logits, targets, losses, scale, logits.shape[1],
            IGNORED=IGNORED, GROUPS=_EIGHTS, WIDTH=_WIDTH, num_warps=_EIGHTS_WARPS
        )  # fmt: skip
    else:
        cross_entropy_rows[(len(logits),)](
            logits, targets, losses, scale, logits.shape[1], IGNORED=IGNORED, BLOCK=_BLOCK, num_warps=_WARPS
        )
    return losses.sum() * scale, logits  # the gradient has taken the logits' place


@_linear_cross_entropy.register_fake
def _(x: Tensor, weight: Tensor, targets: Tensor, by_eights: bool) -> tuple[Tensor, Tensor]:
    return x.new_empty((), dtype=torch.float32), x.new_empty((len(x), len(weight)))


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)  # or a gradient of zeros as large as the logits would be made
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(inputs[0], inputs[1], output[1])


def _backward(
    context: torch.autograd.function.FunctionCtx, upstream: Tensor, _: object
) -> tuple[Tensor, Tensor, None, None]:
    """Scale the two small products, not the gradient of the logits, by what comes from above."""
    x, weight, gradient = context.saved_tensors  # type: ignore[attr-defined]
    return _scaled(gradient @ weight, upstream), _scaled(gradient.t() @ x, upstream), None, None


def _scaled(product: Tensor, upstream: Tensor) -> Tensor:
    """Multiply in fp32: a third, as of three accumulated parts, is 0.2% off in bf16, and all gradients would be."""
    return (product.float() * upstream).to(product.dtype)


_linear_cross_entropy.register_autograd(_backward, setup_context=_save)


def _plain(logits: Tensor, targets: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """The same with torch's own operations, for devices without the kernel."""
    logarithms = F.log_softmax(logits.float(), dim=1)
    loss = F.nll_loss(logarithms, targets, ignore_index=IGNORED, reduction="sum") / counted
    kept = targets != IGNORED
    gradient = logarithms.exp()
    gradient[torch.arange(len(targets), device=targets.device), targets.where(kept, 0)] -= 1
    gradient *= kept[:, None] / counted
    return loss, gradient.to(logits.dtype)


if triton is not None:

    @triton.jit
    def cross_entropy_rows(logits, targets, losses, scale, vocabulary, IGNORED: tl.constexpr, BLOCK: tl.constexpr):
        """One program a row: its loss, and its gradient in the place of its logits."""
        row = tl.program_id(0).to(tl.int64)
        logits += row * vocabulary
        target = tl.load(targets + row)
        lane = tl.arange(0, BLOCK)
        lowest = -1.0e30  # finite, so that lanes beyond the end make no NaN
        highest = tl.full([BLOCK], lowest, tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        for start in range(0, vocabulary, BLOCK):  # each lane sums for itself, scaled to the highest it has seen
            inside = start + lane < vocabulary
            x = tl.load(logits + start + lane, mask=inside, other=lowest, eviction_policy="evict_last").to(tl.float32)
            power = tl.exp(-tl.abs(x - highest))  # one exponential serves both cases
            total = tl.where(x > highest, total * power + 1.0, total + power)
            highest = tl.maximum(highest, x)
        top = tl.max(highest)
        normaliser = tl.sum(total * tl.exp(highest - top))
        kept = target != IGNORED
        at_target = tl.load(logits + target, mask=kept, other=0.0).to(tl.float32)
        tl.store(losses + row, tl.where(kept, top + tl.log(normaliser) - at_target, 0.0))
        factor = tl.where(kept, tl.load(scale), 0.0)
        share = factor / normaliser
        tl.debug_barrier()  # the target's logit is read by all before one overwrites it
        for start in range(0, vocabulary, BLOCK):
            inside = start + lane < vocabulary
            x = tl.load(logits + start + lane, mask=inside, other=lowest, eviction_policy="evict_first").to(tl.float32)
            gradient = tl.exp(x - top) * share - tl.where(start + lane == target, factor, 0.0)
            tl.store(logits + start + lane, gradient.to(logits.dtype.element_ty), mask=inside)

    @triton.jit
    def cross_entropy_eights(
        logits, targets, losses, scale, vocabulary, IGNORED: tl.constexpr, GROUPS: tl.constexpr, WIDTH: tl.constexpr
    ):
        """The same with one rescaling for WIDTH neighbours, powers of two, and the target's gradient put right last.

        A group takes an exponential more than it has elements, where each element by itself takes a comparison and two
        selections: 65,536 rows of 50,304 took 3.7 ms on an H200, and 5.9 ms so (5.2 ms with as many warps).
        """
        row = tl.program_id(0).to(tl.int64)
        logits += row * vocabulary
        target = tl.load(targets + row)
        offset = tl.arange(0, GROUPS)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
        lowest = -1.0e30  # finite, so that lanes beyond the end make no NaN
        highest = tl.full([GROUPS], lowest, tl.float32)
        total = tl.zeros([GROUPS], tl.float32)
        for start in tl.range(0, vocabulary, GROUPS * WIDTH, num_stages=1):
            at = logits + start + offset
            x = tl.load(at, mask=start + offset < vocabulary, other=lowest, eviction_policy="evict_last")
            x = x.to(tl.float32) * _LOG2E
            seen = tl.maximum(highest, tl.max(x, 1))
            total = total * tl.exp2(highest - seen) + tl.sum(tl.exp2(x - seen[:, None]), 1)
            highest = seen
        top = tl.max(highest)
        normaliser = tl.sum(total * tl.exp2(highest - top))
        kept = target != IGNORED
        at_target = tl.load(logits + target, mask=kept, other=0.0).to(tl.float32)
        tl.store(losses + row, tl.where(kept, (top + tl.log2(normaliser)) * _LN2 - at_target, 0.0))
        factor = tl.where(kept, tl.load(scale), 0.0)
        shift = top - tl.log2(factor / normaliser)  # infinite for a row that does not count: its gradient is 0
        tl.debug_barrier()  # the target's logit is read by all before one overwrites it
        for start in tl.range(0, vocabulary, GROUPS * WIDTH, num_stages=1):
            at = logits + start + offset
            inside = start + offset < vocabulary
            x = tl.load(at, mask=inside, other=lowest, eviction_policy="evict_first").to(tl.float32)
            tl.store(at, tl.exp2(x * _LOG2E - shift).to(logits.dtype.element_ty), mask=inside)
        tl.debug_barrier()  # and its gradient is written before it is put right
        own = tl.exp2(at_target * _LOG2E - shift) - factor
        tl.store(logits + target, own.to(logits.dtype.element_ty), mask=kept)
