"""How the ranks share the work: one strategy a file, and the table of them."""

import torch
from torch import nn

from train.config import TrainConfig
from train.precision import Precision
from train.strategies.base import Strategy
from train.strategies.ddp import Ddp
from train.strategies.fsdp2 import Fsdp2
from train.strategies.local import Local

STRATEGIES: dict[str, type[Strategy]] = {"ddp": Ddp, "fsdp2": Fsdp2, "local": Local}


def build_strategy(config: TrainConfig, network: nn.Module, precision: Precision, device: torch.device) -> Strategy:
    """Return the configured strategy around a network that lies on its device."""
    return STRATEGIES[config.strategy.kind](config, network, precision, device)
