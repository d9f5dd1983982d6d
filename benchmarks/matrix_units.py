"""What the matrix units of a GPU give back of products in plain fp32: in tf32, and in bf16 by autocast.

    python benchmarks/matrix_units.py [--rounds 8]

Each runs forwards and backwards, in turns, what autocast casts included, and the shortest round of each counts, by what
its kernels take; behind them a whole network's step (own_tagger.py). `scalescope` says by the shares, and by how long a
product takes, what a job that multiplies so may save (docs/method/findings.md).
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from device_times import shortest_in_turns
from own_tagger import Habits, Tagger
from torch import Tensor
from torch.nn import functional

_LINEAR = (
    (16384, 1024, 1024), (16384, 1024, 4096), (16384, 4096, 1024), (8192, 1024, 1024), (2048, 4096, 4096),
    (16384, 768, 50304), (1024, 1024, 1024), (65536, 256, 256), (4096, 256, 256), (4096, 513, 513), (512, 256, 256),
    (65536, 64, 64), (8192, 64, 64), (256, 512, 10),
)  # fmt: skip
_BATCHED = ((128, 256, 64), (64, 1024, 128))
#: Batch, channels in and out, side of the image and of the filter, stride.
_CONVOLVED = (
    (64, 64, 64, 56, 3, 1), (64, 256, 256, 14, 3, 1), (64, 512, 512, 7, 3, 1), (64, 256, 64, 56, 1, 1),
    (16, 32, 32, 128, 3, 1), (64, 3, 64, 224, 7, 2),
)  # fmt: skip
#: Width, layers, sentences, words.
_NETWORKS = ((1024, 8, 64, 256), (512, 8, 32, 256), (256, 6, 8, 64))
_MODES = ("fp32", "tf32", "bf16")


def backwards(run: Callable[[], Tensor], mode: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = mode == "tf32"
    with torch.autocast("cuda", torch.bfloat16, enabled=mode == "bf16"):
        out = run()
    out.float().sum().backward()


def show(name: str, run: Callable[[], Tensor], rounds: int) -> None:
    plain, *narrow = [ms for ms, _ in shortest_in_turns([partial(backwards, run, mode) for mode in _MODES], rounds)]
    told = "\t".join(f"{mode} {1 - ms / plain:.2f}" for mode, ms in zip(_MODES[1:], narrow, strict=True))
    print(f"{name:40s} {plain:8.3f} ms, of which come back\t{told}", flush=True)


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", requires_grad=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    for rows, inner, columns in _LINEAR:
        run = partial(functional.linear, _random(rows, inner), _random(columns, inner))
        show(f"linear, {rows} x {inner} x {columns}", run, args.rounds)
    for batch, side, inner in _BATCHED:
        run = partial(torch.bmm, _random(batch, side, inner), _random(batch, inner, side))
        show(f"batched, {batch} of {side} x {inner} x {side}", run, args.rounds)
    for batch, into, out, side, width, stride in _CONVOLVED:
        x, weight = _random(batch, into, side, side), _random(out, into, width, width)
        run = partial(functional.conv2d, x, weight, stride=stride, padding=width // 2)
        show(f"convolution, {batch} x {into} of {side} x {side}", run, args.rounds)
    for width, layers, sentences, words in _NETWORKS:
        tagger = Tagger(width, layers, Habits()).cuda()
        run = partial(tagger, torch.randint(0, 8000, (sentences, words), device="cuda"))
        show(f"tagger, {width} wide, {sentences} x {words}", run, args.rounds)


if __name__ == "__main__":
    main()
