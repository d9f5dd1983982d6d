"""GELU within an MLP's products is the MLP that it replaces, with the same gradients, and only where it may be."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scalescope.records.errors import UserError
from scalescope.train.kernels import cublaslt
from scalescope.train.kernels.mlp import fuses_gelu, mlp
from scalescope.train.models.gpt.config import GptConfig
from scalescope.train.models.gpt.network import Gpt
from tests.train_runs import compose

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BACKEND = "inductor" if torch.cuda.is_available() else "aot_eager"  # the same graph, without a C++ compiler
SAMPLES, TOKENS = 3, 40
TAKEN = cublaslt.has_gelu_products(DEVICE)


def layers(width: int, dtype: torch.dtype) -> tuple[nn.Linear, nn.Linear]:
    torch.manual_seed(0)
    first, second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    return first.to(DEVICE, dtype), second.to(DEVICE, dtype)


def gap(ours: Tensor | None, theirs: Tensor | None) -> float:
    assert ours is not None and theirs is not None
    return float((ours.double() - theirs.double()).norm() / theirs.double().norm())


@pytest.mark.parametrize("width", [64, 36])  # what cuBLASLt takes, and what it does not: not a multiple of eight
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 2e-2)]
)
def test_results_and_gradients_are_those_of_two_layers_and_gelu(
    dtype: torch.dtype, tolerance: float, compiled: bool, width: int
) -> None:
    first, second = layers(width, dtype)
    x = torch.randn(SAMPLES, TOKENS, width, device=DEVICE, dtype=dtype).requires_grad_()
    torch._dynamo.reset()
    function = torch.compile(mlp, backend=BACKEND) if compiled else mlp
    weights = torch.randn(SAMPLES, TOKENS, width, device=DEVICE, dtype=torch.float64)
    ours = function(x, first, second)
    (ours.double() * weights).sum().backward()
    twins = [tensor.detach().double().requires_grad_() for tensor in (x, *first.parameters(), *second.parameters())]
    theirs = F.linear(F.gelu(F.linear(*twins[:3]), approximate="tanh"), *twins[3:])
    (theirs * weights).sum().backward()
    assert ours.shape == x.shape and ours.dtype is dtype and gap(ours.detach(), theirs.detach()) < tolerance
    for mine, twin in zip((x, *first.parameters(), *second.parameters()), twins, strict=True):
        assert gap(mine.grad, twin.grad) < tolerance


@pytest.mark.skipif(not TAKEN, reason="needs a Hopper GPU: cuBLASLt's products are measured there alone")
def test_on_hopper_the_products_are_cublaslts() -> None:
    first, second = layers(64, torch.bfloat16)
    x = torch.randn(128, 64, device=DEVICE, dtype=torch.bfloat16)
    both = cublaslt.linear_gelu(x, first.weight, first.bias)
    assert both is not None
    assert gap(both[1], F.linear(x, first.weight, first.bias)) < 1e-3
    assert gap(both[0], F.gelu(both[1].float(), approximate="tanh")) < 5e-3
    gradient = cublaslt.product_gelu_gradient(x, second.weight, both[1])
    expected = torch.ops.aten.gelu_backward((x @ second.weight).double(), both[1].double(), approximate="tanh")
    assert gradient is not None and gap(gradient, expected) < 5e-3
    assert cublaslt.linear_gelu(x[:, :36].contiguous(), first.weight[:, :36].contiguous(), first.bias) is None


def gpt(gelu: str) -> Gpt:
    torch.manual_seed(0)
    return Gpt(GptConfig(kind="gpt", name="gpt", layers=2, heads=2, width=32, context=16, vocabulary=64, batch_size=2,
                         attention="auto", loss_kernel="singles", gelu=gelu)).to(DEVICE)  # fmt: skip


@pytest.mark.parametrize("recompute", [False, True])
def test_a_model_trains_alike_in_both_forms(recompute: bool) -> None:
    tokens = torch.randint(64, (2, 16), device=DEVICE)
    losses, gradients = [], []
    for kind in ("torch", "fused"):
        network = gpt(kind)
        network.recompute = recompute
        loss = network(tokens, tokens.roll(-1))
        loss.backward()
        losses.append(loss.detach())
        gradients.append([parameter.grad for parameter in network.parameters()])
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*gradients)


def test_autocasts_type_is_what_both_products_take_and_parameters_keep_theirs() -> None:
    network = gpt("fused")
    tokens = torch.randint(64, (2, 16), device=DEVICE)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        network(tokens, tokens).backward()
    assert all(one.grad is not None and one.grad.dtype is torch.float32 for one in network.parameters())


def test_layers_on_which_something_hangs_are_called() -> None:
    """What gathers parameters (ZeRO-3) or slices them (tensor parallelism) does so as a layer is called."""
    first, second = layers(8, torch.float32)
    x = torch.zeros(1, 8, device=DEVICE)
    assert fuses_gelu("fused", x, first, second)
    assert not fuses_gelu("torch", x, first, second)
    hook = second.register_forward_pre_hook(lambda module, inputs: None)
    assert not fuses_gelu("fused", x, first, second)
    hook.remove()
    assert fuses_gelu("fused", x, first, second)

    class Other(nn.Linear):
        """A layer of somebody's, as fp8's."""

    assert not fuses_gelu("fused", x, first, Other(32, 8).to(DEVICE))


def test_auto_fuses_what_is_compiled_in_bf16_where_the_products_are(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = layers(8, torch.bfloat16)

    def fused(kind: str, dtype: torch.dtype, rows: int = 4) -> tuple[bool, bool]:
        """Return whether it is as written, and compiled."""
        torch._dynamo.reset()
        x = torch.zeros(rows, 8, dtype=dtype)
        asked = torch.compile(
            lambda x: x + 1 if fuses_gelu(kind, x, first, second) else x, backend="eager", fullgraph=True
        )
        return fuses_gelu(kind, x, first, second), bool(asked(x).any())

    monkeypatch.setattr("scalescope.train.kernels.mlp.has_gelu_products", lambda device: True)
    monkeypatch.setattr("scalescope.train.kernels.mlp._LEAST", 4 * 32)
    kinds = ("torch", "auto", "fused")
    assert [fused(kind, torch.bfloat16) for kind in kinds] == [(False, False), (False, True), (True, True)]
    assert fused("auto", torch.float32) == (False, False)
    assert fused("auto", torch.bfloat16, rows=3) == (False, False), "small ones cost the host more than they save"
    monkeypatch.setattr("scalescope.train.kernels.mlp.has_gelu_products", lambda device: False)
    assert [fused(kind, torch.bfloat16) for kind in kinds] == [(False, False), (False, False), (True, True)]


def test_the_key_says_what_it_takes() -> None:
    assert vars(compose("model=gpt_small").model)["gelu"] == "auto"
    with pytest.raises(UserError, match="gelu=erf"):
        compose("model=gpt_small", "model.gelu=erf")
