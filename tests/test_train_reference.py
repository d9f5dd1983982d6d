"""The same weights give what the reference implementations give; where those are not installed, nothing to compare."""

import pytest
import torch
from torch import Tensor, nn

from scalescope.train.models.gpt.config import GptConfig
from scalescope.train.models.gpt.network import Gpt, from_gpt2
from scalescope.train.models.resnet.config import ResNetConfig
from scalescope.train.models.resnet.network import ResNet50

TOLERANCE = 1e-4  # relative, fp32
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def relative_difference(ours: Tensor, theirs: Tensor) -> float:
    return float(((ours - theirs).norm() / theirs.norm()).detach())


def gradients(network: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


@pytest.fixture(autouse=True)
def plain_fp32() -> None:
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)


def test_gpt_equals_transformers_gpt2() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    theirs = transformers.GPT2LMHeadModel(config).to(DEVICE)
    ours = Gpt(GptConfig(kind="gpt", name="gpt", batch_size=2, layers=4, heads=12, width=768, context=1024,
                         vocabulary=50257, attention="auto", loss_kernel="singles",
                         gelu="torch")).to(DEVICE)  # fmt: skip
    ours.load_state_dict(from_gpt2(theirs.state_dict()))
    tokens = torch.randint(50257, (2, 257), device=DEVICE)
    expected = theirs(tokens[:, :-1]).logits
    assert relative_difference(ours(tokens[:, :-1]), expected) < TOLERANCE
    ours(tokens[:, :-1], tokens[:, 1:]).backward()
    nn.functional.cross_entropy(expected.reshape(-1, 50257), tokens[:, 1:].reshape(-1)).backward()
    expected_gradients = from_gpt2(gradients(theirs))
    for name, gradient in gradients(ours).items():
        assert relative_difference(gradient, expected_gradients[name]) < TOLERANCE, name


def test_resnet_equals_torchvisions_resnet50() -> None:
    """In fp64 to rounding. In fp32 a fresh ResNet-50 amplifies rounding through its 53 batch norms: the
    layout of the same weights alone moves its outputs by 0.00005 and its first gradients by 3%."""
    torchvision = pytest.importorskip("torchvision")
    theirs = torchvision.models.resnet50().to(DEVICE)
    ours = ResNet50(ResNetConfig(kind="resnet", name="resnet50", batch_size=8, classes=1000, image_size=128)).to(DEVICE)
    ours.load_state_dict(theirs.state_dict())
    images = torch.randn(8, 3, 128, 128, device=DEVICE)
    labels = torch.randint(1000, (8,), device=DEVICE)
    assert relative_difference(ours.eval()(images), theirs.eval()(images)) < TOLERANCE
    ours.double().train()
    theirs.double().train()
    images = images.double()
    assert relative_difference(ours(images), theirs(images)) < 1e-6
    ours(images, labels).backward()
    nn.functional.cross_entropy(theirs(images), labels).backward()
    expected_gradients = gradients(theirs)
    for name, gradient in gradients(ours).items():
        assert relative_difference(gradient, expected_gradients[name]) < 1e-6, name
