"""One rank that trains the same few steps under each strategy in turn, and prints the losses: run under torchrun."""

import copy
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, reduce
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from train_runs import SMALL_GPT, compose

import scalescope.train.models.gpt.network
from scalescope.train.config import TrainConfig
from scalescope.train.data.samples import Share, synthetic_batch
from scalescope.train.job import share_of
from scalescope.train.kernels.cross_entropy import linear_cross_entropy
from scalescope.train.models.network import build_model
from scalescope.train.models.precision import Precision
from scalescope.train.strategies.base import Strategy
from scalescope.train.strategies.build import build_strategy

CPU = torch.device("cpu")
STEPS = 4
CHOICES = ("network", "strategy", "resumed", "fused")


NETWORKS = {
    "gpt": (*SMALL_GPT, "precision=fp32", "optimizer.warmup_steps=1"),
    "resnet": ("model=resnet50_64px", "model.image_size=32", "precision=fp32", "optimizer.learning_rate=4e-3"),
}


@cache
def composed(network: str, strategy: str) -> TrainConfig:
    """Return a network's config under a strategy; once, since composing takes longer than the steps."""
    config: TrainConfig = compose(*NETWORKS[network], f"strategy={strategy}")
    return config


def configured(case: dict[str, Any]) -> TrainConfig:
    config = copy.deepcopy(composed(case.get("network", "gpt"), case["strategy"]))
    settings = {key: value for key, value in case.items() if key not in CHOICES}
    for key, value in settings.items():
        *path, last = key.split(".")
        setattr(reduce(getattr, path, config), last, value)
    return config


def fresh(config: TrainConfig, seed: int) -> Strategy[Any]:
    torch.manual_seed(seed)
    model = build_model(config.model, CPU, config.recompute)
    return build_strategy(config, model.network, Precision(config.precision, CPU), CPU)


def own_share(config: TrainConfig) -> Share:
    """Return this rank's samples of a global batch of eight."""
    config.global_batch_size = 8
    return share_of(config, dist.get_rank(), dist.get_world_size())


def losses(config: TrainConfig, strategy: Strategy[Any], steps: range) -> list[float]:
    batch = synthetic_batch(config.model, own_share(config), config.seed, CPU)
    found = []
    for step in steps:
        loss = strategy.train_step(batch, step).clone()
        dist.all_reduce(loss)
        found.append(float(loss) / dist.get_world_size())
    return found


def resumed_losses(config: TrainConfig, strategy: Strategy[Any], folder: Path) -> list[float]:
    """Train half, save, and go on with other weights that the checkpoint must replace."""
    group = dist.group.WORLD
    assert group is not None
    before = losses(config, strategy, range(STEPS // 2))
    strategy.save(folder, group)
    dist.barrier()
    other = fresh(config, seed=config.seed + 1)
    other.load(folder, group)
    return before + losses(config, other, range(STEPS // 2, STEPS))


def evaluated_losses(config: TrainConfig, strategy: Strategy[Any]) -> list[float]:
    """Train between two evaluations: a forward pass without gradients comes first in a job."""
    held_out = synthetic_batch(config.model, own_share(config), config.seed + 1, CPU)
    before = float(strategy.evaluate(*held_out))
    return [before, *losses(config, strategy, range(STEPS)), float(strategy.evaluate(*held_out))]


@contextmanager
def fused_loss(wanted: bool) -> Iterator[None]:
    """Have the loss of a GPU's bf16, which CPUs have too, but do not take by themselves. It must then have run."""
    calls = 0

    def count(x: Tensor, weight: Tensor, targets: Tensor, by_eights: bool = False) -> Tensor:
        nonlocal calls
        calls += 1
        return linear_cross_entropy(x, weight, targets, by_eights)

    with (
        mock.patch.object(
            scalescope.train.models.gpt.network, "can_fuse", lambda _, dtype: wanted and dtype == torch.bfloat16
        ),
        mock.patch.object(scalescope.train.models.gpt.network, "linear_cross_entropy", count),
    ):
        yield
    assert (calls > 0) == wanted


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for number, case in enumerate(json.loads(sys.argv[1])):
        config = configured(case)
        strategy = fresh(config, config.seed)
        if case.get("resumed"):
            found = resumed_losses(config, strategy, Path(sys.argv[2]) / f"case-{number}")
        elif "fused" in case:
            with fused_loss(case["fused"]):
                found = evaluated_losses(config, strategy)
        else:
            found = losses(config, strategy, range(STEPS))
        if dist.get_rank() == 0:
            print("LOSSES", json.dumps([case, found]), flush=True)
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # as a job's rank does: while Python ends, torch's threads now and then abort it


if __name__ == "__main__":
    main()
