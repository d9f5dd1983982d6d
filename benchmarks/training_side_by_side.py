"""Published models under their own compile, and ours, on one GPU, interleaved: whose step is shorter?

    python benchmarks/training_side_by_side.py gpt --nanogpt ~/nanoGPT/model.py --out gpt_steps.jsonl
    python benchmarks/training_side_by_side.py resnet --out resnet_steps.jsonl

gpt: nanoGPT's GPT (its model.py as published, GPT-2 124M with biases, no dropout) against `model=gpt_small`.
resnet: torchvision's and timm's resnet50, channels_last, against `model=resnet50`.
Everything else is the same on both sides: the batch and its data, bf16 autocast, torch.compile, fused AdamW with
clipping (fused SGD for ResNet), one process, one GPU. Ours runs as a training job runs it: composed from conf/,
strategy and all. Every repeat runs a block of steps of each side, in turn, at each side's batch sizes; what counts is
a side's best batch size. Steps are timed by events on the device. Writes every step's time, and prints the medians.
`--sides "scalescope,scalescope otherwise"` has ours beside ours with another kernel (OTHERWISE, or that of
`--otherwise`), and `scalescope by bucket` is ours in a graph a gradient bucket, as on several ranks; on one it is one
graph by default.
"""

import argparse
import importlib.util
import itertools
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the checkout, without an installation

from scalescope.launch.compose import compose_job, typed
from scalescope.train.config import TrainConfig, register
from scalescope.train.models.network import build_model
from scalescope.train.models.precision import Precision
from scalescope.train.strategies.build import build_strategy

#: The keys that put other kernels in, which are not the default.
OTHERWISE = {"gpt": "model.gelu=torch", "resnet": "model.norm=torch"}
BY_BUCKET = "strategy.compile_by_bucket=true"
DEVICE = torch.device("cuda", 0)
WARMUP = 5  # steps of each block that are not timed: clocks and the allocator settle
Step = Callable[[], None]


def main() -> int:
    options = _options()
    torch.cuda.set_device(DEVICE)
    torch.backends.cudnn.benchmark = True  # for every side alike, as training jobs have it by default
    dist.init_process_group("nccl", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
    sides = {name: build() for name, build in _sides(options) if name.partition("/")[0] in options.sides}
    taken: dict[str, list[list[float]]] = defaultdict(list)
    with options.out.open("w") as out:
        for repeat in range(options.repeats):
            for name in sides if repeat % 2 == 0 else reversed(sides):
                step_ms = _block(sides[name], options.steps)
                taken[name].append(step_ms)
                out.write(json.dumps({"side": name, "repeat": repeat, "step_ms": step_ms}) + "\n")
                out.flush()
    _print(taken, options)
    dist.destroy_process_group()
    return 0


def _sides(options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Step]]]:
    """Yield each side at each of its batch sizes; `name/batch` is its name."""
    theirs = {"gpt": ["nanoGPT"], "resnet": ["torchvision", "timm"]}[options.model]
    for batch in options.batch_sizes:
        for name in theirs:
            yield f"{name}/{batch}", partial(_published, name, batch, options)
    for batch in options.our_batch_sizes or options.batch_sizes:
        yield f"scalescope/{batch}", partial(_ours, batch, options)
        yield (
            f"scalescope otherwise/{batch}",
            partial(_ours, batch, options, (options.otherwise or OTHERWISE[options.model],)),
        )
        yield f"scalescope by bucket/{batch}", partial(_ours, batch, options, (BY_BUCKET,))


def _published(name: str, batch: int, options: argparse.Namespace) -> Step:
    torch.manual_seed(1)
    if name == "nanoGPT":
        specification = importlib.util.spec_from_file_location("nanogpt_model", options.nanogpt)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        sys.modules["nanogpt_model"] = module
        specification.loader.exec_module(module)
        shape = module.GPTConfig(block_size=1024, vocab_size=50304, n_layer=12, n_head=12, n_embd=768, dropout=0.0)
        network = module.GPT(shape).to(DEVICE)
        optimizer = network.configure_optimizers(0.1, 6e-4, (0.9, 0.95), "cuda")
    else:
        if name == "torchvision":
            from torchvision.models import resnet50

            network = resnet50()
        else:
            from timm import create_model

            network = create_model("resnet50")
        network = network.to(DEVICE, memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-5, fused=True)
    network.train()
    # dynamic: or a second batch size would be compiled for any
    compiled: Callable[..., Any] = torch.compile(network, dynamic=False)
    inputs, targets = _batch(options.model, batch)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(inputs, targets)[1] if name == "nanoGPT" else F.cross_entropy(compiled(inputs), targets)
        loss.backward()
        if name == "nanoGPT":
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _ours(batch: int, options: argparse.Namespace, trial: tuple[str, ...] = ()) -> Step:
    register()
    model = {"gpt": "gpt_small", "resnet": "resnet50"}[options.model]
    overrides = [f"model={model}", f"model.batch_size={batch}", "logger=none", *trial, *options.overrides]
    config = typed(compose_job("train", overrides), TrainConfig)
    torch.manual_seed(1)
    precision = Precision(config.precision, DEVICE)
    network = build_model(config.model, DEVICE).network
    keep_apart(network)
    strategy = build_strategy(config, network, precision, DEVICE)
    data = _batch(options.model, batch)
    return lambda: cast(None, strategy.train_step(data, 0))


def keep_apart(network: nn.Module) -> None:
    """Have a network compiled for itself: Dynamo keeps its graphs by code object, and would run what it made of one
    side for another of the same shapes, however that is to be cut."""
    forward = cast(FunctionType, type(network).forward)
    own = FunctionType(
        forward.__code__.replace(), forward.__globals__, forward.__name__, forward.__defaults__, forward.__closure__
    )
    network.forward = MethodType(own, network)


def _batch(model: str, batch: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(DEVICE).manual_seed(7)
    if model == "gpt":
        tokens = torch.randint(50257, (batch, 1025), device=DEVICE, generator=generator)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    images = torch.randn(batch, 3, 224, 224, device=DEVICE, generator=generator)
    labels = torch.randint(1000, (batch,), device=DEVICE, generator=generator)
    return images.to(memory_format=torch.channels_last), labels


def _block(step: Step, steps: int) -> list[float]:
    """Return the milliseconds of `steps` steps, each from mark to mark on the device."""
    for _ in range(WARMUP):
        step()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # the next side finds the memory as this one did
    return [before.elapsed_time(after) for before, after in itertools.pairwise(marks)]


def _print(taken: dict[str, list[list[float]]], options: argparse.Namespace) -> None:
    tokens = 1024 if options.model == "gpt" else 1
    unit = "tokens/s" if options.model == "gpt" else "images/s"
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.repeats} repeats of {options.steps} steps"
    )
    print(f"| side | batch | step ms (median; lowest and highest repeat) | {unit} |\n|---|---|---|---|")
    best: dict[str, float] = {}
    for name, repeats in taken.items():
        side, _, batch = name.partition("/")
        medians = [statistics.median(one) for one in repeats]
        middle = statistics.median(medians)
        rate = int(batch) * tokens / middle * 1e3
        best[side] = max(best.get(side, 0.0), rate)
        print(f"| {side} | {batch} | {middle:.2f} ({min(medians):.2f} to {max(medians):.2f}) | {rate:,.0f} |")
    for side, rate in best.items():
        if side != "scalescope" and "scalescope" in best:
            print(
                f"scalescope at its best batch size does {best['scalescope'] / rate:.3f} × what {side} does at its own"
            )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("gpt", "resnet"))
    parser.add_argument("--nanogpt", type=Path, help="nanoGPT's model.py")
    parser.add_argument("--batch-sizes", type=_sizes, help="theirs; default 32,64 for gpt and 256,512 for resnet")
    parser.add_argument("--our-batch-sizes", type=_sizes, help="default: the same")
    parser.add_argument("--sides", default="nanoGPT,torchvision,timm,scalescope", help="which of them to run")
    parser.add_argument("--otherwise", metavar="KEY=VALUE", help="what `scalescope otherwise` has that ours has not")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--out", type=Path, required=True, help="every step's time, as JSON lines")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="for our side, after --")
    options = parser.parse_intermixed_args()  # or the model alone would end the positionals
    options.sides = options.sides.split(",")
    options.batch_sizes = options.batch_sizes or ([32, 64] if options.model == "gpt" else [256, 512])
    if options.model == "gpt" and options.nanogpt is None:
        parser.error("gpt needs --nanogpt FILE, nanoGPT's model.py")
    return options


def _sizes(text: str) -> list[int]:
    return [int(size) for size in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
