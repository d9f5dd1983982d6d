"""fp8: the linear layers of GPT's blocks alone, near bf16's losses, and refused where it cannot be."""

import pytest
import torch

from scalescope.hardware.ceiling import measure_matmul
from scalescope.hardware.fp8 import fp8_product
from scalescope.records.errors import UserError
from scalescope.train.checks import check
from scalescope.train.config import TrainConfig
from scalescope.train.data.samples import Share, synthetic_batch
from scalescope.train.models.fp8 import convert_to_fp8, has_package
from scalescope.train.models.network import build_model
from tests.test_train_models import gpt
from tests.train_runs import compose

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("model=gpt_tiny", "strategy=zero2"), "use ddp, fsdp2 or local"),
        (("model=resnet50",), "made of convolutions"),
    ],
)
def test_fp8_is_refused_where_the_config_is_made(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        compose("precision=fp8", *overrides)


def on_a_gpu(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> TrainConfig:
    """A config on a device that is not here: only what torch says of it can be stood in for."""
    properties = type("Properties", (), {"name": "H200", "major": capability[0], "minor": capability[1]})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    return compose("precision=fp8", "model=gpt_tiny", "launch.device=cuda")


def test_fp8_is_refused_before_anything_starts_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"the job runs on CPUs; use precision=bf16"):
        check(compose("precision=fp8", "model=gpt_tiny", "launch.device=cpu"), 1)
    with pytest.raises(UserError, match=r"H200 has compute capability 8\.0, below 8\.9"):
        check(on_a_gpu(monkeypatch, (8, 0)), 1)
    config = on_a_gpu(monkeypatch, (9, 0))
    monkeypatch.setattr("scalescope.train.models.fp8.find_spec", lambda name: None)  # as where torchao is not installed
    with pytest.raises(UserError, match=r"pip install 'scalescope\[fp8\]'"):
        check(config, 1)


@pytest.mark.job
def test_the_blocks_linear_layers_multiply_in_fp8_and_learn_as_in_fp32() -> None:
    if not has_package():
        pytest.skip("torchao is not installed")
    config = gpt(layers=2, width=64, heads=2)
    tokens, targets = synthetic_batch(config, Share(0, 1, 4), seed=1, device=CPU)

    def losses(fp8: bool) -> list[float]:
        torch.manual_seed(0)
        network = build_model(config, CPU).network
        names = [name for name, _ in network.named_parameters()]
        if fp8:
            layers = convert_to_fp8(network, emulate=True)
            parts = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
            assert layers == [f"transformer.h.{block}.{part}" for block in (0, 1) for part in parts]
            assert [name for name, _ in network.named_parameters()] == names  # checkpoints stay what they are
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
        found = []
        for _ in range(8):
            loss = network(tokens, targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(float(loss.detach()))
        return found

    plain, rounded = losses(fp8=False), losses(fp8=True)
    assert rounded != plain
    assert rounded == pytest.approx(plain, rel=5e-3)
    assert rounded[-1] < rounded[0] - 0.2


def test_a_product_of_fp8_matrices_is_the_product() -> None:
    left, right = (torch.randn(32, 32, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    dtype = torch.float8_e4m3fn
    product = fp8_product(left.to(dtype), right.t().contiguous().to(dtype).t())
    expected = left.to(dtype).float() @ right.to(dtype).float()
    assert float((product.float() - expected).norm() / expected.norm()) < 0.01


def test_a_cpus_ceiling_is_of_fp32_whatever_the_job_multiplies_in() -> None:
    assert measure_matmul(CPU, "fp8")[1] == measure_matmul(CPU, "bf16")[1] == "1024³ fp32"
