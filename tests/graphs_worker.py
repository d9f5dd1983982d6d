"""One rank that trains two steps by each value of strategy.compile_by_bucket, and counts the graphs Dynamo makes."""

import copy
import json
import os
import sys
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from strategies_worker import composed, fresh, losses
from torch import nn

import scalescope.train.strategies.ddp.strategy

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "benchmarks"))  # noqa: PTH118, PTH120
from training_side_by_side import keep_apart

graphs: list[int] = []


def count(graph: torch.fx.GraphModule, _: object) -> Any:
    """Stand in for Inductor, which compiles each graph that Dynamo has cut."""
    graphs[-1] += 1
    return graph.forward


def compile_module(module: nn.Module) -> Any:
    return torch.compile(module, dynamic=False, backend=count)


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    with mock.patch.object(scalescope.train.strategies.ddp.strategy, "compile_module", compile_module):
        for asked in json.loads(sys.argv[1]):
            config = copy.deepcopy(composed("gpt", "ddp"))
            for node, key, value in (
                (config, "compile", True),
                (config.strategy, "compile_by_bucket", asked),
                (config.strategy, "bucket_mib", 1.0),  # of 3.5 MiB of gradients
                (config.model, "layers", 4),
                (config.model, "width", 128),
            ):
                setattr(node, key, value)
            strategy = fresh(config, config.seed)
            keep_apart(strategy.network)
            graphs.append(0)
            found = losses(config, strategy, range(2))
            if dist.get_rank() == 0:
                print("GRAPHS", json.dumps([strategy.compiled_by_bucket, graphs[-1], found]), flush=True)
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # as a job's rank does: while Python ends, torch's threads now and then abort it


if __name__ == "__main__":
    main()
