"""What a built-in normalisation gives back of one that is written out in single operators, forwards and backwards.

    python benchmarks/written_out.py [--threads 1] [--rounds 9] [--device cuda]

Each way of writing it and the built-in one run in turns, on one core unless told otherwise, and the shortest round of
each counts; on a GPU apart for the device and for the host that launches. `scalescope` prices normalisation that is
written out by the share (docs/method/findings.md).
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator

import torch
from device_times import given_back, shortest_in_turns
from torch import Tensor
from torch.nn import functional

EPS = 1e-5
Norm = Callable[[Tensor, Tensor, Tensor], Tensor]

#: What is normalised over the last dimension: tokens by channels. What has groups: images, channels, side.
TOKENS = ((512, 64), (2048, 256), (4096, 512), (8192, 1024))
IMAGES = ((8, 32, 32), (8, 64, 16), (8, 128, 8), (16, 64, 64))
GROUPS = 8


def group_norm_by_squares(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    images, channels, rows, columns = x.shape
    grouped = x.reshape(images, GROUPS, channels // GROUPS, rows, columns)
    apart = grouped - grouped.mean((2, 3, 4), keepdim=True)
    variance = (apart * apart).mean((2, 3, 4), keepdim=True)
    normed = (apart / torch.sqrt(variance + EPS)).reshape(x.shape)
    return normed * weight.view(1, channels, 1, 1) + bias.view(1, channels, 1, 1)


def group_norm_by_var(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    images, channels, _, _ = x.shape
    grouped = x.view(images, GROUPS, -1)
    mean, variance = grouped.mean(-1, keepdim=True), grouped.var(-1, keepdim=True, unbiased=False)
    normed = ((grouped - mean) / (variance + EPS).sqrt()).view(x.shape)
    return normed * weight.view(1, channels, 1, 1) + bias.view(1, channels, 1, 1)


def layer_norm_by_var(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    return (x - mean) * torch.rsqrt(variance + EPS) * weight + bias


def layer_norm_by_std(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return weight * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + EPS) + bias


def layer_norm_by_squares(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    apart = x - x.mean(-1, keepdim=True)
    return apart / torch.sqrt(apart.pow(2).mean(-1, keepdim=True) + EPS) * weight + bias


def rms_norm(x: Tensor, weight: Tensor, _bias: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


def rms_norm_by_norm(x: Tensor, weight: Tensor, _bias: Tensor) -> Tensor:
    root = torch.linalg.vector_norm(x, dim=-1, keepdim=True) / math.sqrt(x.shape[-1])
    normed: Tensor = x / (root + EPS)
    return normed * weight


def batch_norm_by_var(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(variance + EPS) * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def batch_norm_by_squares(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mean = x.mean((0, 2, 3), keepdim=True)
    variance = (x - mean).pow(2).mean((0, 2, 3), keepdim=True)
    return weight.view(1, -1, 1, 1) * ((x - mean) / torch.sqrt(variance + EPS)) + bias.view(1, -1, 1, 1)


BUILT_IN: dict[str, Norm] = {
    "GroupNorm": lambda x, weight, bias: functional.group_norm(x, GROUPS, weight, bias, EPS),
    "LayerNorm": lambda x, weight, bias: functional.layer_norm(x, x.shape[-1:], weight, bias, EPS),
    "RMSNorm": lambda x, weight, _bias: functional.rms_norm(x, x.shape[-1:], weight, EPS),
    "BatchNorm": lambda x, weight, bias: functional.batch_norm(x, None, None, weight, bias, training=True, eps=EPS),
}
WRITTEN_OUT: tuple[tuple[str, Norm], ...] = (
    ("GroupNorm", group_norm_by_squares),
    ("GroupNorm", group_norm_by_var),
    ("LayerNorm", layer_norm_by_var),
    ("LayerNorm", layer_norm_by_std),
    ("LayerNorm", layer_norm_by_squares),
    ("RMSNorm", rms_norm),
    ("RMSNorm", rms_norm_by_norm),
    ("BatchNorm", batch_norm_by_var),
    ("BatchNorm", batch_norm_by_squares),
)


def inputs_of(kind: str) -> Iterator[Tensor]:
    if kind in ("LayerNorm", "RMSNorm"):
        yield from (torch.randn(rows, width) for rows, width in TOKENS)
    else:
        yield from (torch.randn(images, channels, side, side) for images, channels, side in IMAGES)


def took_ms(norm: Norm, x: Tensor, times: int) -> float:
    """Return what a pass forwards and backwards takes, ms."""
    channels = x.shape[-1] if x.dim() < 4 else x.shape[1]
    weight, bias = torch.ones(channels, requires_grad=True), torch.zeros(channels, requires_grad=True)
    own = x.clone().requires_grad_()
    gradient = torch.ones_like(x)
    begun = time.perf_counter()
    for _ in range(times):
        norm(own, weight, bias).backward(gradient)
        own.grad = weight.grad = bias.grad = None
    return (time.perf_counter() - begun) / times * 1e3


def passes(norm: Norm, x: Tensor) -> Callable[[], None]:
    """Return a pass forwards and backwards."""
    channels = x.shape[-1] if x.dim() < 4 else x.shape[1]
    weight = torch.ones(channels, device=x.device, requires_grad=True)
    bias = torch.zeros(channels, device=x.device, requires_grad=True)
    own, gradient = x.clone().requires_grad_(), torch.ones_like(x)

    def run() -> None:
        norm(own, weight, bias).backward(gradient)
        own.grad = weight.grad = bias.grad = None

    return run


def of_device(rounds: int) -> None:
    """Print what built-in normalisations give back on a GPU, of inputs as large as one computes at a time."""
    print(
        "normalisation\twritten\tinput\twritten_ms\tbuilt_in_ms\tgiven_back\twritten_host_ms\tbuilt_in_host_ms\thost_back"
    )
    for kind, written in WRITTEN_OUT:
        for small in inputs_of(kind):
            x = small.repeat(8, *[1] * (small.dim() - 1)).cuda()
            own, built_in = shortest_in_turns([passes(written, x), passes(BUILT_IN[kind], x)], rounds)
            shape = " x ".join(map(str, x.shape))
            print(f"{kind}\t{written.__name__}\t{shape}\t{given_back(own, built_in)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if args.device == "cuda":
        of_device(args.rounds)
        return
    print("normalisation\twritten\tinput\twritten_ms\tbuilt_in_ms\tgiven_back")
    for kind, written in WRITTEN_OUT:
        for x in inputs_of(kind):
            times = max(2, int(4e6 / x.numel()))
            norms = (written, BUILT_IN[kind])
            rounds = [[took_ms(norm, x, times) for norm in norms] for _ in range(args.rounds)]
            own, built_in = (min(column) for column in zip(*rounds, strict=True))
            shape = " x ".join(map(str, x.shape))
            share = 1 - built_in / own
            print(f"{kind}\t{written.__name__}\t{shape}\t{own:.3f}\t{built_in:.3f}\t{share:.2f}", flush=True)


if __name__ == "__main__":
    main()
