"""Softmax cross entropy over a large vocabulary, in two passes over the logits instead of six.

The step of a small GPT spends more time on the loss than on any of its layers: 64 samples of 1,024 tokens have 6.6 GB
of bf16 logits. Left to autograd they are read for their maximum, for the sum, for the loss and again for the gradient.
Here one kernel reads a row from memory, sums it, reads it again from the cache, and writes its gradient: what the
backward pass needs exists by the end of the forward pass, and is multiplied straight into the two matrix products.

The arithmetic within a row is fp32. Shapes: M rows (samples times tokens), C width, V vocabulary.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

try:
    import triton
    import triton.language as tl
except ImportError:  # torch for CPUs comes without
    triton = None

IGNORED = -100  # torch's: such a target adds nothing to the mean
_BLOCK = 8192  # elements of a row at a time
_WARPS = 16


def can_fuse(x: Tensor) -> bool:
    """Whether `linear_cross_entropy` has its kernel for x: bf16 on a GPU. (fp16's gradients would vanish unscaled.)"""
    return triton is not None and x.is_cuda and x.dtype == torch.bfloat16


def linear_cross_entropy(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy in nats of logits x·weightᵀ: x (M, C), weight (V, C), targets (M,) -> ().

    Rows whose target is IGNORED count for nothing; without any other the loss is 0.
    """
    loss, _ = _linear_cross_entropy(x, weight, targets)
    return loss


@torch.library.custom_op("scalescope::linear_cross_entropy", mutates_args=())
def _linear_cross_entropy(x: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean loss () in fp32, and its gradient with respect to the logits (M, V) in their type."""
    logits = x @ weight.t()  # (M, V)
    counted = (targets != IGNORED).sum()
    if not can_fuse(logits):
        return _plain(logits, targets, counted)
    losses = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    scale = counted.clamp(min=1).reciprocal().float()  # stays on the device
    _rows[(len(logits),)](
        logits, targets, losses, scale, logits.shape[1], IGNORED=IGNORED, BLOCK=_BLOCK, num_warps=_WARPS
    )
    return losses.sum() * scale, logits  # the gradient has taken the logits' place


@_linear_cross_entropy.register_fake
def _(x: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty((), dtype=torch.float32), x.new_empty((len(x), len(weight)))


def _save(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)  # or a gradient of zeros as large as the logits would be made
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(inputs[0], inputs[1], output[1])


def _backward(context: torch.autograd.function.FunctionCtx, upstream: Tensor, _: object) -> tuple[Tensor, Tensor, None]:
    """Scale the two small products, not the gradient of the logits, by what comes from above."""
    x, weight, gradient = context.saved_tensors  # type: ignore[attr-defined]
    return (gradient @ weight) * upstream.to(x.dtype), (gradient.t() @ x) * upstream.to(x.dtype), None


_linear_cross_entropy.register_autograd(_backward, setup_context=_save)


def _plain(logits: Tensor, targets: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """The same with torch's own operations, for devices without the kernel."""
    logarithms = F.log_softmax(logits.float(), dim=1)
    loss = F.nll_loss(logarithms, targets, ignore_index=IGNORED, reduction="sum") / counted.clamp(min=1)
    kept = targets != IGNORED
    gradient = logarithms.exp()
    gradient[torch.arange(len(targets), device=targets.device), targets.where(kept, 0)] -= 1
    gradient *= kept[:, None] / counted.clamp(min=1)
    return loss, gradient.to(logits.dtype)


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _rows(logits, targets, losses, scale, vocabulary, IGNORED: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        """One program a row: its loss, and its gradient in the place of its logits."""
        row = tl.program_id(0).to(tl.int64)
        logits += row * vocabulary
        target = tl.load(targets + row)
        lane = tl.arange(0, BLOCK)
        highest = -float("inf")
        total = 0.0
        for start in range(0, vocabulary, BLOCK):  # the sum, scaled to the highest logit so far
            inside = start + lane < vocabulary
            x = tl.load(logits + start + lane, mask=inside, other=-float("inf"), eviction_policy="evict_last")
            x = x.to(tl.float32)
            new = tl.maximum(highest, tl.max(x))
            total = total * tl.exp(highest - new) + tl.sum(tl.exp(x - new))
            highest = new
        kept = target != IGNORED
        at_target = tl.load(logits + target, mask=kept, other=0.0).to(tl.float32)
        tl.store(losses + row, tl.where(kept, highest + tl.log(total) - at_target, 0.0))
        factor = tl.where(kept, tl.load(scale), 0.0)
        tl.debug_barrier()  # the target's logit is read by all before one overwrites it
        for start in range(0, vocabulary, BLOCK):
            inside = start + lane < vocabulary
            x = tl.load(logits + start + lane, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
            share = tl.exp(x - highest) / total - tl.where(start + lane == target, 1.0, 0.0)
            tl.store(logits + start + lane, (share * factor).to(tl.bfloat16), mask=inside)
