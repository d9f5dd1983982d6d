"""The optimisers: which parameters decay, and the learning rate of a step."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from scalescope.train.settings import OptimizerConfig


def build_optimizer(config: OptimizerConfig, network: nn.Module, sharded: bool = False) -> Optimizer:
    """Return the fused optimiser. Matrices and filters decay; biases and norms (one dimension) do not.

    Parameters in slices (`sharded`, DTensors) have a fused AdamW, but no fused SGD: its operations take lists of them,
    which torch does not choose for DTensors by itself. One by one, SGD of ResNet-50's 161 parameters keeps the host
    for 58 ms, longer than an H200 needs for the step. One kernel, or list, takes those of one mesh.
    """
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    groups = []
    for parameters in _by_mesh(trained):
        groups += [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
    if config.kind == "adamw":
        first, second = config.betas
        return AdamW(groups, lr=config.learning_rate, betas=(first, second), fused=True)
    return SGD(groups, lr=config.learning_rate, momentum=config.momentum, fused=not sharded, foreach=sharded)


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
    if limit is None:
        return
    parts = _by_mesh([parameter for parameter in network.parameters() if parameter.grad is not None])
    if len(parts) < 2:
        torch.nn.utils.clip_grad_norm_(network.parameters(), limit, foreach=True)
        return
    scale_gradients(parts, limit, torch.stack([gradient_norm(part) for part in parts]).norm())


def gradient_norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Return the norm () of gradients that lie on one mesh, or on none; what lies on other ranks counts."""
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None], foreach=True)
    whole: Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # of a DTensor
    return whole


def scale_gradients(parts: Sequence[Sequence[nn.Parameter]], limit: float, norm: Tensor) -> None:
    """Scale gradients down as a total norm () of all of them asks for; `parts`: parameters of one mesh each."""
    for part in parts:
        own, mesh = norm, getattr(part[0], "device_mesh", None)
        if mesh is not None:
            from torch.distributed.tensor import DTensor, Replicate  # a second to load: only where something is sliced

            own = DTensor.from_local(norm, mesh, [Replicate()] * mesh.ndim, run_check=False)
        torch.nn.utils.clip_grads_with_norm_(part, limit, own, foreach=True)


def _by_mesh(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Return parameters by the mesh that they lie in slices on, those of none together, in the order of the first."""
    found: dict[object, list[nn.Parameter]] = {}
    for parameter in parameters:
        found.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    return list(found.values())
