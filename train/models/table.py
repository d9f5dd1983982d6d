"""The table of models: how each is built, what it costs, and what it eats."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from scalescope.train.config import GptConfig, ModelConfig, ResNetConfig
from scalescope.train.models.attention import choose_attention
from scalescope.train.models.flops import Flops, gpt_flops, resnet_flops
from scalescope.train.models.gpt import Gpt
from scalescope.train.models.resnet import ResNet50


@dataclass(frozen=True)
class Model:
    """A network on its device, with what a reader of its figures needs."""

    network: nn.Module  # network(inputs, targets) is the mean loss
    parameters: int
    flops: Flops
    tokens_per_sample: int | None


def build_model(config: ModelConfig, device: torch.device, recompute: bool = False) -> Model:
    """Return the configured model with fresh weights, drawn on the device from torch's default generator."""
    if isinstance(config, GptConfig):
        choose_attention(config.attention, device)
    with device:
        if config.kind == "gpt":
            network: nn.Module = (gpt := Gpt(cast(GptConfig, config)))
            gpt.recompute = recompute
        else:
            network = ResNet50(cast(ResNetConfig, config))
    parameters = sum(parameter.numel() for parameter in network.parameters())
    if isinstance(config, GptConfig):
        return Model(network, parameters, gpt_flops(config, parameters, recompute), config.context)
    return Model(network, parameters, resnet_flops(cast(ResNetConfig, config)), None)
