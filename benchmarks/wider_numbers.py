"""What float32 gives back of what operators take in float64 on a core or a GPU, forwards and backwards.

    python benchmarks/wider_numbers.py [--rounds 15] [--device cuda]

Both run in turns on one thread, and the shortest round of each counts; on a GPU, of inputs 16 times as large, what its
kernels take. `scalescope` says by the share what a job that
computes in float64 on all its ranks may save (docs/method/findings.md).
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from device_times import shortest_in_turns
from torch import Tensor
from torch.nn import functional

Pass = Callable[[Tensor, Tensor], Tensor]


#: A GPU's inputs have so many times the rows.
_LARGER = 16


def convolution(x: Tensor, weight: Tensor, stride: int = 1, groups: int = 1) -> Tensor:
    return functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2, groups=groups)


#: What each computes, of an input and weights of these shapes.
CASES: dict[str, tuple[Pass, tuple[int, ...], tuple[int, ...]]] = {
    "linear, 4096 x 256 x 256": (functional.linear, (4096, 256), (256, 256)),
    "linear, 512 x 1024 x 1024": (functional.linear, (512, 1024), (1024, 1024)),
    "convolution, 8 x 32 of 32 x 32": (convolution, (8, 32, 32, 32), (32, 32, 3, 3)),
    "convolution, 4 x 16 of 64 x 64": (convolution, (4, 16, 64, 64), (16, 16, 3, 3)),
    "convolution, 4 x 64 of 28 x 28": (convolution, (4, 64, 28, 28), (64, 64, 3, 3)),
    "convolution, 8 x 256 of 7 x 7": (convolution, (8, 256, 7, 7), (256, 256, 3, 3)),
    "convolution of 1 x 1, 128 channels": (convolution, (4, 128, 28, 28), (128, 128, 1, 1)),
    "convolution by channel, 64": (partial(convolution, groups=64), (4, 64, 28, 28), (64, 1, 3, 3)),
    "convolution of 3 channels, 7 x 7": (partial(convolution, stride=2), (4, 3, 112, 112), (64, 3, 7, 7)),
    "convolution of 1 channel": (partial(convolution, stride=2), (8, 1, 80, 400), (32, 1, 3, 3)),
    "convolution behind that": (partial(convolution, stride=2), (8, 32, 40, 200), (32, 32, 3, 3)),
    "layer norm, 4096 x 256": (lambda x, w: functional.layer_norm(x, (256,), w), (4096, 256), (256,)),
    "GELU, 4096 x 256": (lambda x, w: functional.gelu(x) * w, (4096, 256), (256,)),
    "softmax, 1024 x 1024": (lambda x, w: functional.softmax(x, 1) * w, (1024, 1024), (1024,)),
    "add and ReLU, 4096 x 256": (lambda x, w: functional.relu(x + w), (4096, 256), (256,)),
    "attention, 4 x 8 x 128 x 32": (
        lambda x, w: functional.scaled_dot_product_attention(x, x, x) * w, (4, 8, 128, 32), (32,)
    ),
}  # fmt: skip


def backwards(run: Pass, x: Tensor, weight: Tensor) -> None:
    run(x, weight).sum().backward()


def shortest_ms(run: Pass, x: dict[torch.dtype, Tensor], weight: dict[torch.dtype, Tensor], rounds: int) -> list[float]:
    """Return the shortest pass in each type, the types in turns, ms."""
    found = dict.fromkeys(x, float("inf"))
    for _ in range(rounds + 2):
        for dtype in x:
            begin = time.perf_counter()
            backwards(run, x[dtype], weight[dtype])
            found[dtype] = min(found[dtype], 1e3 * (time.perf_counter() - begin))
    return list(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name, (run, first, second) in CASES.items():
        of_input = (_LARGER * first[0], *first[1:]) if args.device == "cuda" else first
        x, weight = (
            {
                dtype: torch.rand(shape, dtype=dtype, device=args.device, requires_grad=True)
                for dtype in (torch.float64, torch.float32)
            }
            for shape in (of_input, second)
        )
        if args.device == "cuda":
            runs = [partial(backwards, run, x[dtype], weight[dtype]) for dtype in x]
            (wide, _), (narrow, _) = shortest_in_turns(runs, args.rounds)
        else:
            wide, narrow = shortest_ms(run, x, weight, args.rounds)
        print(f"{name:36s} {wide:8.2f} ms {narrow:8.2f} ms, which gives back {1 - narrow / wide:.2f}")


if __name__ == "__main__":
    main()
