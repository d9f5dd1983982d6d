"""Fused batch norms are torch's: values, gradients, running statistics, names; eager and compiled; on every device."""

import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torch.nn import functional as F

from scalescope.records.errors import UserError
from scalescope.train.kernels.norm import fuses_norms, norm_relu, norm_relu_twice
from scalescope.train.models.compiling import compile_apart
from scalescope.train.models.network import Network, build_model
from scalescope.train.models.resnet.config import ResNetConfig
from scalescope.train.models.resnet.network import Bottleneck, FusedBottleneck
from tests.train_runs import compose

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

import training_side_by_side

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CPU = torch.device("cpu")
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}
CHANNELS = 24
KINDS = ("alone", "added", "normed")  # what becomes of the shortcut


def tensor(dtype: torch.dtype, *shape: int) -> Tensor:
    """Return what bf16 holds, far from zero beside its spread."""
    made = (torch.randn(shape, device=DEVICE) * 2 + 3).bfloat16().to(dtype)
    return made.to(memory_format=torch.channels_last)


def norm(dtype: torch.dtype) -> nn.BatchNorm2d:
    made = nn.BatchNorm2d(CHANNELS, device=DEVICE, dtype=dtype)
    with torch.no_grad():
        made.weight.uniform_(0.5, 1.5)
        made.bias.uniform_(-1, 1)
    return made


def gap(ours: Tensor | None, theirs: Tensor | None) -> float:
    assert ours is not None and theirs is not None
    return float((ours.double() - theirs.double()).norm() / theirs.double().norm().clamp(min=1e-30))


def torchs(norms: list[nn.BatchNorm2d], x: Tensor, shortcut: Tensor, kind: str) -> Tensor:
    total = norms[0](x)
    if kind != "alone":
        total = total + (norms[1](shortcut) if kind == "normed" else shortcut)
    return F.relu(total)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_those_of_fp64(kind: str, twice: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    wide = torch.promote_types(dtype, torch.float32)  # autocast leaves a norm's parameters in fp32
    own, others = norm(wide), norm(wide)
    exact = [nn.BatchNorm2d(CHANNELS, device=DEVICE, dtype=torch.float64) for _ in range(2)]
    for module, twin in zip((own, others), exact, strict=True):
        twin.load_state_dict(module.state_dict())
    shape = (6, CHANNELS, 5, 7)
    x, shortcut = (tensor(dtype, *shape).requires_grad_() for _ in range(2))
    upstream = [tensor(dtype, *shape) for _ in range(1 + twice)]
    given, given_norm = None if kind == "alone" else shortcut, others if kind == "normed" else None
    outputs: tuple[Tensor, ...] = (norm_relu(own, x, given, given_norm),)
    if twice:
        for module in (own, others):
            module.reset_running_stats()
        outputs = norm_relu_twice(own, x, given, given_norm)
    torch.autograd.backward(outputs, upstream)
    twins = [one.detach().double().requires_grad_() for one in (x, shortcut)]
    y = torchs(exact, twins[0], twins[1], kind)
    y.backward(torch.stack(upstream).double().sum(0))
    tolerance = TOLERANCES[dtype]
    assert outputs[0].dtype == dtype and outputs[0].is_contiguous(memory_format=torch.channels_last)
    assert gap(outputs[0].detach(), y.detach()) < tolerance
    assert gap(x.grad, twins[0].grad) < tolerance
    assert (shortcut.grad is None) == (kind == "alone")
    if kind != "alone":
        assert gap(shortcut.grad, twins[1].grad) < tolerance
    for module, twin in zip((own, others) if kind == "normed" else (own,), exact, strict=False):
        assert gap(module.weight.grad, twin.weight.grad) < tolerance
        assert gap(module.bias.grad, twin.bias.grad) < tolerance
        # momentum, and M/(M-1) of the batch's variance
        assert gap(module.running_mean, twin.running_mean) < 1e-6
        assert gap(module.running_var, twin.running_var) < 1e-6
        assert module.num_batches_tracked == twin.num_batches_tracked == 1


@pytest.mark.parametrize("side", [1, 4])
def test_strides_are_those_that_a_compiler_is_told(side: int) -> None:
    x = torch.randn(4, CHANNELS, side, side, device=DEVICE, requires_grad=True)
    torch.library.opcheck(torch.ops.scalescope.norm_relu, (x.detach(), torch.ones(2, CHANNELS, device=DEVICE),
                          *(torch.ones(CHANNELS, device=DEVICE) for _ in range(2)), None, None, None, None),
                          test_utils=("test_schema", "test_faketensor"))  # fmt: skip
    y = norm_relu(norm(torch.float32), x)
    assert y.stride() == (CHANNELS * side * side, 1, CHANNELS * side, CHANNELS)


@pytest.mark.parametrize("unread", [0, 1])
def test_a_reader_that_hands_nothing_back_is_left_out(unread: int) -> None:
    torch.manual_seed(0)
    x, module = tensor(torch.float32, 4, CHANNELS, 4, 4).requires_grad_(), norm(torch.float32)
    norm_relu_twice(module, x)[1 - unread].square().sum().backward()
    twin = x.detach().requires_grad_()
    norm_relu(module, twin).square().sum().backward()
    torch.testing.assert_close(x.grad, twin.grad)


def test_a_nan_is_passed_on() -> None:
    x = tensor(torch.float32, 4, CHANNELS, 4, 4)
    x[0, 3, 0, 0] = torch.nan
    y = norm_relu(norm(torch.float32), x)
    assert y[:, 3].isnan().all() and not y[:, :3].isnan().any()


def test_one_value_a_channel_has_no_variance() -> None:
    with pytest.raises(ValueError, match="one value a channel"):
        norm_relu(norm(torch.float32), tensor(torch.float32, 1, CHANNELS, 1, 1))


class Stack(nn.Module):
    """A stage of two blocks, one of them with a norm in its shortcut, behind a convolution."""

    def __init__(self, kind: type[Bottleneck]) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 1, bias=False)
        self.blocks = nn.ModuleList(kind(inputs, 16, stride) for inputs, stride in ((32, 2), (64, 1)))

    def forward(self, images: Tensor) -> Tensor:
        x: Tensor = self.first(images)
        again = x
        for block in self.blocks:
            x, again = block(x, again) if isinstance(block, FusedBottleneck) else (block(x),) * 2
        return x.mean(dim=(2, 3)).square().sum()


def stacks(dtype: torch.dtype) -> tuple[Stack, Stack]:
    torch.manual_seed(0)
    theirs, ours = Stack(Bottleneck), Stack(FusedBottleneck)
    ours.load_state_dict(theirs.state_dict())
    return theirs.to(DEVICE, dtype), ours.to(DEVICE, dtype)


#: Only Inductor looks into a kernel's launch; on a CPU there is none, and building its own would take minutes.
BACKEND = "inductor" if DEVICE.type == "cuda" else "aot_eager"


def whole_graph(module: nn.Module, images: Tensor) -> Tensor:
    loss: Tensor = torch.compile(module, backend=BACKEND, fullgraph=True, dynamic=False)(images)
    return loss


def blocks(module: nn.Module, images: Tensor) -> Tensor:
    """Each block a graph of its own, as with FSDP2: it hands the same memory on twice."""
    for block in cast(Stack, module).blocks:
        block.compile(backend=BACKEND, fullgraph=True, dynamic=False)
    loss: Tensor = module(images)
    return loss


def pieces(module: nn.Module, images: Tensor) -> Tensor:
    """Cut between any two layers with parameters, as at DDP's bucket edges."""
    from torch._dynamo.backends.distributed import DDPOptimizer

    optimizer = DDPOptimizer(bucket_bytes_cap=1, first_bucket_cap=1,
                             backend_compile_fn=torch._dynamo.lookup_backend(BACKEND))  # fmt: skip
    loss: Tensor = torch.compile(module, backend=optimizer.compile_fn, dynamic=False)(images)
    assert len(optimizer.buckets) > 5
    return loss


@pytest.fixture
def forgotten() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)  # the kernels' arithmetic is fp32
@pytest.mark.parametrize("how", [whole_graph, blocks, pytest.param(pieces, marks=pytest.mark.job)])
def test_compiled_blocks_are_torchs_and_move_statistics_once(
    how: Callable[[nn.Module, Tensor], Tensor], dtype: torch.dtype
) -> None:
    theirs, ours = stacks(dtype)
    images = torch.randn(4, 3, 8, 8, device=DEVICE, dtype=dtype).to(memory_format=torch.channels_last)
    expected, loss = theirs(images), how(ours, images)
    expected.backward()
    loss.backward()
    torch.testing.assert_close(loss, expected)
    tolerance = 1e-9 if dtype is torch.float64 else 1e-3  # cuDNN multiplies fp32 in TF32
    for (name, parameter), twin in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert gap(parameter.grad, twin.grad) < tolerance, name
    for buffer, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(buffer, other)


@pytest.mark.usefixtures("forgotten")
@pytest.mark.job
def test_all_blocks_are_compiled_where_each_is_a_graph_of_its_own() -> None:
    network = resnet("fused")
    images = torch.randn(2, 3, 32, 32).to(memory_format=torch.channels_last)
    limit = torch._dynamo.config.recompile_limit
    with torch._dynamo.config.patch(recompile_limit=limit, fail_on_recompile_limit_hit=True):
        compile_apart(list(network.blocks), backend="eager")
        loss: Tensor = network(images, torch.arange(2))
        loss.backward()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > limit  # blocks alike may share one


def resnet(kind: str) -> Network:
    torch.manual_seed(0)
    config = ResNetConfig(kind="resnet", name="resnet50", batch_size=2, classes=10, image_size=32, norm=kind)
    return build_model(config, CPU).network


@pytest.mark.job
def test_a_checkpoint_of_one_form_goes_on_with_the_other() -> None:
    theirs, ours = resnet("torch").double(), resnet("fused").double()
    for one, other in ((theirs, ours), (ours, theirs)):
        with torch.no_grad():
            for value in one.state_dict().values():
                value.add_(torch.rand_like(value) / 100) if value.is_floating_point() else value.add_(1)
        other.load_state_dict(one.state_dict())  # strictly: the same names and shapes
    images = torch.randn(4, 3, 32, 32, dtype=torch.float64).to(memory_format=torch.channels_last)
    labels = torch.arange(4)
    for mode in (True, False):  # with the batch's statistics, then with the running ones it has moved
        losses = [network.train(mode)(images, labels) for network in (theirs, ours)]
        torch.testing.assert_close(*losses)
    for ours_buffer, theirs_buffer in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(ours_buffer, theirs_buffer)


def test_ranks_keep_their_own_statistics() -> None:
    assert not any(isinstance(module, nn.SyncBatchNorm) for module in resnet("fused").modules())


def test_what_a_gpu_has_shown_is_on_and_keys_say_what_they_take() -> None:
    assert [vars(compose(f"model={name}").model)["norm"] for name in ("resnet50", "resnet50_64px")] == ["auto"] * 2
    assert vars(compose("model=gpt_small").model)["loss_kernel"] == "eights"
    assert vars(compose("model=gpt_small", "model.loss_kernel=singles").model)["loss_kernel"] == "singles"
    for wrong in (("model=resnet50", "model.norm=fast"), ("model=gpt_tiny", "model.loss_kernel=tens")):
        with pytest.raises(UserError):
            compose(*wrong)


@pytest.mark.usefixtures("forgotten")
def test_auto_fuses_what_is_compiled_where_the_kernels_are(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(1)

    def fused(kind: str) -> tuple[bool, bool]:
        """Return whether it is as written, and compiled."""
        torch._dynamo.reset()
        asked = torch.compile(lambda x: x + 1 if fuses_norms(kind, x) else x, backend="eager", fullgraph=True)
        return fuses_norms(kind, x), bool(asked(x))

    monkeypatch.setattr("scalescope.train.kernels.norm.triton_takes", lambda device, dtype: True)
    assert [fused(kind) for kind in ("torch", "auto", "fused")] == [(False, False), (False, True), (True, True)]
    monkeypatch.setattr("scalescope.train.kernels.norm.triton_takes", lambda device, dtype: False)
    assert [fused(kind) for kind in ("torch", "auto", "fused")] == [(False, False), (False, False), (True, True)]


def test_auto_is_torchs_where_nothing_is_compiled() -> None:
    theirs, ours = resnet("torch").double(), resnet("auto").double()
    images = torch.randn(4, 3, 32, 32, dtype=torch.float64).to(memory_format=torch.channels_last)
    for network in (theirs, ours):
        network(images, torch.arange(4)).backward()
    assert all(torch.equal(one, other) for one, other in zip(theirs.buffers(), ours.buffers(), strict=True))
    for one, other in zip(theirs.parameters(), ours.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(one.grad, other.grad)


def test_only_the_last_block_has_one_reader() -> None:
    blocks = [block for block in resnet("fused").blocks if isinstance(block, FusedBottleneck)]
    assert [one.has_next for one, _ in pairwise(blocks)] == [True] * 15 and not blocks[-1].has_next


def test_side_by_side_runs_ours_with_the_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["--sides", "scalescope,scalescope otherwise", "--out", "steps.jsonl", "--", "model.image_size=64"]
    monkeypatch.setattr(sys, "argv", ["training_side_by_side.py", "resnet", *wanted])
    options = training_side_by_side._options()
    assert options.overrides == ["model.image_size=64"]
    assert options.sides == ["scalescope", "scalescope otherwise"]
    assert {name.partition("/")[0] for name, _ in training_side_by_side._sides(options)} >= set(options.sides)
    for model, key in (("gpt_small", "gpt"), ("resnet50", "resnet")):
        plain, other = (
            compose(f"model={model}").model,
            compose(f"model={model}", training_side_by_side.OTHERWISE[key]).model,
        )
        assert other != plain
