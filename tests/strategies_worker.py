"""One rank that trains the same few steps under each strategy in turn, and prints the losses: run under torchrun."""

import json
import sys

import torch
import torch.distributed as dist
from train_runs import SMALL_GPT, compose

from train.data import Share, synthetic_batch
from train.models import build_model
from train.precision import Precision
from train.strategies import build_strategy

CPU = torch.device("cpu")
STEPS = 4


def losses(overrides: list[str]) -> list[float]:
    config = compose(*SMALL_GPT, "model.batch_size=4", "optimizer.warmup_steps=1", *overrides)
    torch.manual_seed(config.seed)
    model = build_model(config.model, CPU, config.recompute)
    strategy = build_strategy(config, model.network, Precision(config.precision, CPU), CPU)
    share = Share(dist.get_rank(), dist.get_world_size(), 8 // dist.get_world_size())
    batch = synthetic_batch(config.model, share, config.seed, CPU)
    found = []
    for step in range(STEPS):
        loss = strategy.train_step(batch, step).clone()
        dist.all_reduce(loss)
        found.append(float(loss) / dist.get_world_size())
    return found


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for case in json.loads(sys.argv[1]):
        result = losses(case)
        if dist.get_rank() == 0:
            print("LOSSES", json.dumps([case, result]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
