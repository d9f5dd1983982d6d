"""What stands in for torch's own operations gives what they give, with the same gradients."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import scalescope.train.kernels
from scalescope.scaling.trace.kernel_kinds import ELEMENTWISE, LOSS, NORMALISATION, kind_of
from scalescope.train.kernels import devices
from scalescope.train.kernels.cross_entropy import can_fuse
from scalescope.train.kernels.max_pool import max_pool
from scalescope.train.models.compiling import can_compile
from scalescope.train.models.gpt.network import _gelu
from scalescope.train.models.resnet.stem import folded_convolution

ROOT = Path(__file__).resolve().parent.parent
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def images(*shape: int) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(shape, device=DEVICE, dtype=torch.float64).to(memory_format=torch.channels_last)


def test_the_folded_stem_is_the_convolution_it_replaces() -> None:
    pixels = images(2, 3, 32, 48)
    ours = torch.randn(64, 3, 7, 7, device=DEVICE, dtype=torch.float64).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    folded = folded_convolution(pixels, ours)
    plain = F.conv2d(pixels, theirs, stride=2, padding=3)
    torch.testing.assert_close(folded, plain)
    folded.square().sum().backward()
    plain.square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("shape", [(2, 64, 8, 12), (3, 5, 16, 6), (2, 8, 7, 9)])
def test_max_pool_is_torchs_also_where_several_are_largest(shape: tuple[int, ...]) -> None:
    ours = images(*shape).float().relu().requires_grad_()  # half of it zeros: ties in every window
    theirs = ours.detach().clone().requires_grad_()
    pooled, expected = max_pool(ours), F.max_pool2d(theirs, 3, stride=2, padding=1)
    torch.testing.assert_close(pooled, expected, rtol=0, atol=0)
    upstream = torch.randn_like(expected)
    pooled.backward(upstream)
    expected.backward(upstream)
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_gelu_compiled_is_gelus_tanh_form() -> None:
    x = torch.linspace(-9, 9, 1001, device=DEVICE)
    torch.testing.assert_close(torch.compile(_gelu, backend="aot_eager")(x), F.gelu(x, approximate="tanh"))


INTERPRETED = """
import torch
from torch.nn import functional as F
from torch import nn
from scalescope.train.kernels import cross_entropy, max_pool, norm, norm_kernels
cross_entropy.can_fuse = lambda device, dtype: True
cross_entropy._BLOCK = 256  # several to a row
cross_entropy._EIGHTS = 32
norm.triton_takes = lambda device, dtype: True
norm_kernels.PLANS.update(dict.fromkeys(norm_kernels.PLANS, (64, 4, 6)))  # several tiles to a program, several programs
close = torch.testing.assert_close
torch.manual_seed(0)
for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
    x, weight = (torch.randn(rows, 32, dtype=dtype, requires_grad=True) for rows in (24, 1001))
    targets = torch.randint(1001, (24,))
    targets[::5] = cross_entropy.IGNORED
    twins = [tensor.detach().double().requires_grad_() for tensor in (x, weight)]
    (F.cross_entropy(twins[0] @ twins[1].t(), targets) * 2).backward()
    for by_eights in (False, True):
        x.grad = weight.grad = None
        (cross_entropy.linear_cross_entropy(x, weight, targets, by_eights) * 2).backward()
        for ours, theirs in zip((x, weight), twins):
            assert (ours.grad - theirs.grad).norm() < tolerance * theirs.grad.norm()
for shape in ((2, 64, 8, 12), (3, 5, 16, 6)):
    ours = torch.randn(shape).relu().to(memory_format=torch.channels_last).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    pooled, expected = max_pool._max_pool(ours)[0], F.max_pool2d(theirs, 3, stride=2, padding=1)
    upstream = torch.randn_like(expected)
    pooled.backward(upstream)
    expected.backward(upstream)
    close(pooled, expected, rtol=0, atol=0)
    close(ours.grad, theirs.grad)
for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
    for kind, channels, twice in ((k, c, t) for k in range(3) for c in (24, 16) for t in (False, True)):
        made = lambda: (torch.randn(2, channels, 3, 5) * 2 + 3).to(dtype).to(memory_format=torch.channels_last)
        inputs, upstream = [made().requires_grad_() for _ in range(2)], [made() for _ in range(1 + twice)]
        exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
        norms = [nn.BatchNorm2d(channels) for _ in range(2)]
        for one in norms:
            nn.init.uniform_(one.weight, 0.5, 1.5), nn.init.uniform_(one.bias, -1, 1)
        twins = [nn.BatchNorm2d(channels, dtype=torch.float64) for _ in norms]
        for one, twin in zip(norms, twins):
            twin.load_state_dict(one.state_dict())
        given = (norms[0], inputs[0], *(() if kind == 0 else (inputs[1],) if kind == 1 else (inputs[1], norms[1])))
        outputs = norm.norm_relu_twice(*given) if twice else (norm.norm_relu(*given),)
        torch.autograd.backward(outputs, upstream)
        total = twins[0](exact[0])
        if kind:
            total = total + (exact[1] if kind == 1 else twins[1](exact[1]))
        total.relu().backward(sum(one.double() for one in upstream))
        pairs = [(outputs[0], total.relu())] + [(a.grad, b.grad) for a, b in zip(inputs[:1 + (kind > 0)], exact)]
        for one, twin in list(zip(norms, twins))[:1 + (kind == 2)]:
            pairs += [(a.grad, b.grad) for a, b in zip(one.parameters(), twin.parameters())]
            pairs += list(zip(one.buffers(), twin.buffers()))
        for ours, theirs in pairs:
            assert (ours - theirs).double().norm() <= tolerance * theirs.double().norm(), (dtype, kind, channels, twice)
broken = torch.randn(3, 24, 4, 4).to(memory_format=torch.channels_last)
broken[0, 3, 0, 0] = torch.nan
assert norm.norm_relu(nn.BatchNorm2d(24), broken)[:, 3].isnan().all()
print("right")
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels themselves run here, in the tests above")
@pytest.mark.skipif(find_spec("triton") is None, reason="NOT TESTED: Triton, which torch for GPUs brings, is not here")
@pytest.mark.job
def test_the_kernels_are_right_in_tritons_interpreter() -> None:
    done = subprocess.run([sys.executable, "-c", INTERPRETED], cwd=ROOT, env={**os.environ, "TRITON_INTERPRET": "1"},
                          capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    assert done.stdout == "right\n", done.stderr


def test_a_trace_tells_the_kind_of_our_own_kernels_by_their_names() -> None:
    sources = "".join(path.read_text() for path in Path(scalescope.train.kernels.__path__[0]).glob("*.py"))
    launched = re.findall(r"^ +(?:wrap_triton\()?(\w+)\)?\[.+\]\(", sources, re.MULTILINE)
    assert {name: kind_of(name) for name in launched} == {
        "batch_norm_apply": NORMALISATION,
        "batch_norm_gradient": NORMALISATION,
        "batch_norm_moments": NORMALISATION,
        "batch_norm_statistics": NORMALISATION,
        "batch_norm_sums": NORMALISATION,
        "batch_norm_totals": NORMALISATION,
        "cross_entropy_eights": LOSS,
        "cross_entropy_rows": LOSS,
        "max_pool_forward": ELEMENTWISE,
        "max_pool_backward": ELEMENTWISE,
    }


@pytest.mark.parametrize(
    ("capability", "hip", "dtype", "takes"),
    [
        ((9, 0), None, torch.bfloat16, True),
        ((7, 5), None, torch.bfloat16, False),  # Turing: ptxas refuses what Triton would have it do
        ((7, 5), None, torch.float16, True),
        ((6, 1), None, torch.float32, False),
        ((6, 1), "7.0", torch.bfloat16, True),  # AMD's numbers are others
    ],
)
def test_older_gpus_are_spared_what_triton_cannot_build_for_them(
    capability: tuple[int, int], hip: str | None, dtype: torch.dtype, takes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_HAS_TRITON", True)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    gpu = torch.device("cuda", 0)
    assert devices.triton_takes(gpu, dtype) is takes
    assert can_fuse(gpu, dtype) is (takes and dtype is torch.bfloat16)
    assert can_compile(gpu, dtype) is (takes and shutil.which("cc") is not None)
    assert not devices.triton_takes(torch.device("cpu"), dtype)
