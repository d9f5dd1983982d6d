"""How the ranks share the work: one strategy a file, and the table of them."""

from importlib import import_module
from typing import cast

import torch
from torch import nn

from scalescope.train.config import TrainConfig
from scalescope.train.models.precision import Precision
from scalescope.train.strategies.base import Strategy as Strategy  # the name that callers know it by

STRATEGIES = {  # by strategy.kind; loaded when chosen, since some take seconds
    "ddp": "scalescope.train.strategies.ddp:Ddp",
    "fsdp2": "scalescope.train.strategies.fsdp2:Fsdp2",
    "local": "scalescope.train.strategies.local:Local",
    "zero": "scalescope.train.strategies.zero:Zero",
}


def build_strategy(config: TrainConfig, network: nn.Module, precision: Precision, device: torch.device) -> Strategy:
    """Return the configured strategy around a network that lies on its device."""
    precision.convert(network)
    module, _, name = STRATEGIES[config.strategy.kind].partition(":")
    strategy = cast(type[Strategy], getattr(import_module(module), name))
    return strategy(config, network, precision, device)
