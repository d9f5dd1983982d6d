"""The optimisers: which parameters decay, and the learning rate of a step."""

import math

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from scalescope.train.settings import OptimizerConfig


def build_optimizer(config: OptimizerConfig, network: nn.Module, sharded: bool = False) -> Optimizer:
    """Return the fused optimiser. Matrices and filters decay; biases and norms (one dimension) do not.

    Parameters in slices (`sharded`, DTensors) have a fused AdamW, but no fused SGD.
    """
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    if config.kind == "adamw":
        first, second = config.betas
        return AdamW(groups, lr=config.learning_rate, betas=(first, second), fused=True)
    return SGD(groups, lr=config.learning_rate, momentum=config.momentum, fused=not sharded)


def learning_rate(config: OptimizerConfig, step: int, steps: int) -> float:
    """Return a step's rate: linear warm-up, then a cosine down to `final_fraction` of the peak at the last step."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, steps - 1 - config.warmup_steps)
    share = config.final_fraction + (1 - config.final_fraction) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return config.learning_rate * share


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Give a step's rate to every group; a plain number, so nothing waits for the device."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def clip_gradients(network: nn.Module, limit: float | None) -> None:
    """Scale the gradients down to a total norm of `limit`, without reading the norm on the host."""
    if limit is not None:
        torch.nn.utils.clip_grad_norm_(network.parameters(), limit, foreach=True)
