"""The loss over a large vocabulary is torch's own, and so are its gradients, eager and compiled, on every device."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from scalescope.train.kernels.cross_entropy import IGNORED, can_fuse, linear_cross_entropy

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BACKEND = "inductor" if torch.cuda.is_available() else "aot_eager"  # the same graph, without a C++ compiler
ROWS, WIDTH, VOCABULARY = 96, 64, 9001  # more than one block of the kernel, and no multiple of one


def made(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(ROWS, WIDTH, device=DEVICE, dtype=dtype).requires_grad_()
    weight = (torch.randn(VOCABULARY, WIDTH, device=DEVICE) / 4).to(dtype).requires_grad_()
    targets = torch.randint(VOCABULARY, (ROWS,), device=DEVICE)
    targets[::7] = IGNORED
    return x, weight, targets


def reference(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy((x.double() @ weight.double().t()), targets)


def gap(ours: Tensor | None, theirs: Tensor | None) -> float:
    assert ours is not None and theirs is not None
    return float((ours.double() - theirs.double()).norm() / theirs.double().norm())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("by_eights", [False, True])
def test_loss_and_gradients_are_torchs(by_eights: bool, compiled: bool, dtype: torch.dtype, tolerance: float) -> None:
    x, weight, targets = made(dtype)
    function = torch.compile(linear_cross_entropy, backend=BACKEND) if compiled else linear_cross_entropy
    loss = function(x, weight, targets, by_eights)
    (loss * 3).backward()  # what comes from above is not 1
    expected = reference(x.detach().requires_grad_(), weight.detach().requires_grad_(), targets)
    twins = [tensor.detach().requires_grad_() for tensor in (x, weight)]
    (reference(twins[0], twins[1], targets) * 3).backward()
    assert gap(loss.detach(), expected.detach()) < tolerance / 10
    assert gap(x.grad, twins[0].grad) < tolerance
    assert gap(weight.grad, twins[1].grad) < tolerance


@pytest.mark.parametrize(
    ("dtype", "by_eights"), [(torch.float32, False), (torch.bfloat16, False), (torch.bfloat16, True)]
)
def test_rows_without_a_target_add_nothing(dtype: torch.dtype, by_eights: bool) -> None:
    x, weight, _ = made(dtype)
    loss = linear_cross_entropy(x, weight, torch.full((ROWS,), IGNORED, device=DEVICE), by_eights)
    loss.backward()
    assert loss.item() == 0
    assert x.grad is not None and not x.grad.any()


@pytest.mark.parametrize("parts", [3, 7])
def test_a_part_of_an_accumulated_step_weighs_its_share(parts: int) -> None:
    """Each rounded number is off by its own rounding, but all of them together by no common factor."""
    gradients = []
    for divisor in (1, parts):
        x, weight, targets = made(torch.bfloat16)
        (linear_cross_entropy(x, weight, targets) / divisor).backward()
        gradients.append([tensor.grad.double() for tensor in (x, weight) if tensor.grad is not None])
    for whole, part in zip(*gradients, strict=True):
        assert float((part * whole).sum() / whole.square().sum()) * parts == pytest.approx(1, abs=5e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernel runs on GPUs")
def test_the_kernel_takes_bf16_on_a_gpu_and_nothing_else() -> None:
    x, weight, targets = made(torch.bfloat16)
    assert can_fuse(x.device, x.dtype)
    assert not can_fuse(x.device, torch.float16)
    assert linear_cross_entropy(x, weight, targets).dtype == torch.float32
