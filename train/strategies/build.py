"""From a job's config to its strategy."""

from importlib import import_module
from typing import Any, cast

import torch

from scalescope.train.models.network import Network
from scalescope.train.models.precision import Precision
from scalescope.train.strategies.base import Recipe, Strategy


def build_strategy(config: Recipe, network: Network, precision: Precision, device: torch.device) -> Strategy[Any]:
    """Return the configured strategy around a network that lies on its device."""
    precision.convert(network)
    module, _, name = config.strategy.implementation.partition(":")  # loaded when chosen, since some take seconds
    strategy = cast(type[Strategy[Any]], getattr(import_module(module), name))
    return strategy(config, network, precision, device)
