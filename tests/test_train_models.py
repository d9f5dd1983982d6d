"""The two models are what their names promise: weights, names, arithmetic, and the losses they start with."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from scalescope.records.errors import UserError
from scalescope.train.config import TrainConfig
from scalescope.train.data.samples import Share, synthetic_batch
from scalescope.train.models.gpt.attention import choose_attention, chosen_attention
from scalescope.train.models.gpt.config import GptConfig
from scalescope.train.models.gpt.network import Gpt, from_gpt2
from scalescope.train.models.network import build_model
from scalescope.train.models.precision import Precision
from scalescope.train.models.resnet.config import ResNetConfig, resnet_multiply_adds
from scalescope.train.strategies.build import build_strategy
from tests.train_runs import compose

META = torch.device("meta")
CPU = torch.device("cpu")


def gpt(**changes: int) -> GptConfig:
    values = {"layers": 2, "heads": 2, "width": 64, "context": 64, "vocabulary": 256, "batch_size": 2, **changes}
    return GptConfig(kind="gpt", name="gpt", attention="auto", loss_kernel="singles", gelu="torch", **values)


def resnet(image_size: int) -> ResNetConfig:
    return ResNetConfig(kind="resnet", name="resnet50", batch_size=2, classes=1000, image_size=image_size, norm="torch")


@pytest.mark.parametrize(
    ("name", "published"),
    [("small", 124_439_808), ("medium", 354_823_168), ("large", 774_030_080), ("xl", 1_557_611_200)],
)
def test_each_gpt_has_as_many_parameters_as_published(name: str, published: int) -> None:
    config = compose(f"model=gpt_{name}").model
    assert isinstance(config, GptConfig)
    ours = build_model(config, META).parameters
    assert config.parameters == ours
    assert ours - (50304 - 50257) * config.width == published  # the vocabulary is filled up to a multiple of 64


def test_gpt_parameters_have_gpt2s_names() -> None:
    names = {name for name, _ in build_model(gpt(layers=1), META).network.named_parameters()}
    block = "transformer.h.0."
    assert names == {
        "transformer.wte.weight", "transformer.wpe.weight", "transformer.ln_f.weight", "transformer.ln_f.bias",
        *(f"{block}{part}.{kind}" for kind in ("weight", "bias")
          for part in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")),
    }  # fmt: skip


def test_a_published_gpt2_checkpoint_loads_and_keeps_its_meaning() -> None:
    model = Gpt(gpt(layers=1))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    turned = {
        name: tensor.t().contiguous() if ".c_" in name and tensor.dim() == 2 else tensor  # (in, out), as published
        for name, tensor in state.items()
    }
    turned["transformer.h.0.attn.bias"] = torch.ones(1, 1, 64, 64)  # the mask buffer of old checkpoints
    fresh = Gpt(gpt(layers=1))
    fresh.load_state_dict(from_gpt2(turned))
    tokens = torch.arange(64)[None]
    assert torch.equal(fresh(tokens), model(tokens))


def test_gpt_predicts_no_token_from_its_future() -> None:
    torch.manual_seed(0)
    model = Gpt(gpt())
    tokens = torch.randint(256, (1, 64))
    other = tokens.clone()
    other[0, 40:] = (other[0, 40:] + 1) % 256
    before, after = model(tokens), model(other)
    assert torch.allclose(before[0, :40], after[0, :40], atol=1e-5)
    assert not torch.allclose(before[0, 40:], after[0, 40:], atol=1e-3)


def test_an_untrained_gpt_knows_nothing() -> None:
    torch.manual_seed(0)
    config = gpt()
    tokens, targets = synthetic_batch(config, Share(0, 1, 8), seed=1, device=CPU)
    assert float(Gpt(config)(tokens, targets).detach()) == pytest.approx(math.log(256), abs=0.1)


def test_resnet50_has_torchvisions_parameters_and_names() -> None:
    model = build_model(resnet(224), META)
    assert model.parameters == 25_557_032 == resnet(224).parameters
    ten = replace(resnet(32), classes=10)
    assert build_model(ten, META).parameters == ten.parameters
    state = model.network.state_dict()
    assert len(state) == 320
    assert state["layer1.0.downsample.0.weight"].shape == (256, 64, 1, 1)
    assert state["layer4.2.bn3.running_var"].shape == (2048,)
    assert state["layer3.5.conv2.weight"].shape == (256, 256, 3, 3)
    assert state["fc.weight"].shape == (1000, 2048)
    assert model.network.get_submodule("layer2.0.conv2").stride == (2, 2)  # v1.5: the stride is the 3×3's


def test_gpt_flops_are_those_a_step_does() -> None:
    config = gpt(layers=3, width=128, heads=4, batch_size=2)
    model = build_model(config, CPU)
    tokens, targets = synthetic_batch(config, Share(0, 1, 2), seed=1, device=CPU)
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH):
        model.network(tokens, targets).backward()
    one_dimensional = sum(p.numel() for p in model.network.parameters() if p.dim() == 1)
    uncounted = 6 * one_dimensional * config.context  # biases and norms: in the formula, in no matrix product
    assert counter.get_total_flops() / 2 == model.flops.per_sample - uncounted
    assert uncounted < 0.01 * model.flops.per_sample


def test_gpts_hardware_flops_are_those_a_step_with_recomputation_does() -> None:
    config = gpt(layers=3, width=128, heads=4, batch_size=2)
    model = build_model(config, CPU, recompute=True)
    tokens, targets = synthetic_batch(config, Share(0, 1, 2), seed=1, device=CPU)
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH):
        model.network(tokens, targets).backward()
    uncounted = 6 * sum(p.numel() for p in model.network.parameters() if p.dim() == 1) * config.context
    assert counter.get_total_flops() / 2 == model.flops.hardware_per_sample - uncounted
    assert (
        build_model(config, CPU).flops.hardware_per_sample == model.flops.per_sample < model.flops.hardware_per_sample
    )


def test_gpt_small_costs_what_the_formula_says() -> None:
    config = compose("model=gpt_small").model
    assert isinstance(config, GptConfig)
    by_hand = 6 * (124_475_904 - 1024 * 768) + 12 * 12 * 12 * 64 * 1024  # a token
    assert config.flops(124_475_904).per_sample == by_hand * 1024


@pytest.mark.parametrize("image_size", [224, 64, 97, 160])
def test_resnet_flops_are_those_of_its_layers(image_size: int) -> None:
    network = build_model(resnet(image_size), META).network
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        network(torch.empty(1, 3, image_size, image_size, device=META))
    assert counter.get_total_flops() == 2 * resnet_multiply_adds(image_size, 1000)


def test_resnet_at_224_pixels_is_three_times_8_18_gflop() -> None:
    assert build_model(resnet(224), META).flops.per_sample / 3e9 == pytest.approx(8.18, abs=0.005)


def golden(config: TrainConfig, steps: int) -> list[float]:
    torch.set_num_threads(1)
    torch.manual_seed(config.seed)
    model = build_model(config.model, CPU)
    strategy = build_strategy(config, model.network, Precision(config.precision, CPU), CPU)
    batch = synthetic_batch(config.model, Share(0, 1, config.model.batch_size), config.seed, CPU)
    return [float(strategy.train_step(batch, step)) for step in range(steps)]


GOLDEN_TOLERANCE = 2e-3  # relative: other CPUs add in another order


@pytest.mark.parametrize(
    ("overrides", "losses"),
    [
        (("model=gpt_tiny", "precision=fp32"), [5.57806, 5.39136, 5.15081, 5.00917, 4.89993]),
        (("model=gpt_tiny", "precision=bf16"), [5.57808, 5.39139, 5.15077, 5.00949, 4.90025]),
        (
            ("model=resnet50_64px", "precision=fp32", "model.batch_size=4", "optimizer.learning_rate=0.004"),
            [7.24687, 6.78036, 5.39617, 3.8723, 2.16512],
        ),
    ],
    ids=["gpt-fp32", "gpt-bf16", "resnet-fp32"],
)
def test_losses_are_what_they_always_were(overrides: tuple[str, ...], losses: list[float]) -> None:
    config = compose(*overrides, "strategy=local", "steps=60", "optimizer.warmup_steps=2")
    assert golden(config, len(losses)) == pytest.approx(losses, rel=GOLDEN_TOLERANCE)


def test_accumulated_parts_give_the_whole_batchs_losses() -> None:
    whole = compose("model=gpt_tiny", "precision=fp32", "strategy=local", "model.context=32")
    parts = compose("model=gpt_tiny", "precision=fp32", "strategy=local", "model.context=32", "accumulate=4")
    assert golden(parts, 4) == pytest.approx(golden(whole, 4), rel=1e-5)


def test_the_attention_kernel_is_chosen_and_told() -> None:
    assert chosen_attention(gpt(), CPU, torch.float32) == "flash"
    choose_attention("math", CPU)
    try:
        assert chosen_attention(gpt(), CPU, torch.float32) == "math"
        with pytest.raises(UserError, match=r"model\.attention=cudnn is a GPU's kernel"):
            choose_attention("cudnn", CPU)
        choose_attention("flash", CPU)
        asked = replace(gpt(), attention="flash")
        with pytest.raises(UserError, match=r"model\.attention=flash: torch has no such kernel .* complex64"):
            chosen_attention(asked, CPU, torch.complex64)
    finally:
        choose_attention("auto", CPU)
