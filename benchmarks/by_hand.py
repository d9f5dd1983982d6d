"""What torch's own operators give back of updates that a loop over parameters writes out: optimizers, averages, norms.

    torchrun --nproc-per-node 2 benchmarks/by_hand.py [--rounds 15]
    python benchmarks/by_hand.py --device cuda

On each rank, a core each, the ways run in turns behind a forward and a backward pass of the same model, all ranks at
once; the median of what each takes of its core counts. On a GPU the shortest counts, apart for the device and for the
host that launches; norms that are read there wait, and are left out. `scalescope` prices such loops by the share
(docs/method/findings.md).
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.distributed as dist
from device_times import given_back, shortest_in_turns
from torch import Tensor, nn

Update = Callable[[], None]
LR, EPS, FIRST, SECOND, DECAY, KEPT = 1e-3, 1e-8, 0.9, 0.999, 1e-5, 0.999


class Layers(nn.Module):
    """Convolutions and their norms: many parameters, most of them small."""

    def __init__(self) -> None:
        super().__init__()
        wide = [3, 32, 32, 64, 64, 96, 96, 128]
        self.layers = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(last, own, 3, padding=1, stride=2 - at % 2), nn.GroupNorm(8, own), nn.GELU())
                for at, (last, own) in enumerate(pairwise(wide))
            )
        )
        self.out = nn.Linear(wide[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layers(x).mean((2, 3)))  # type: ignore[no-any-return]


class Tokens(nn.Module):
    """A transformer: matrices, with a norm and a bias beside each."""

    def __init__(self, width: int = 256, layers: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(2000, width)
        layer = nn.TransformerEncoderLayer(width, 4, 3 * width, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.embed(x))  # type: ignore[no-any-return]


class Tables(nn.Module):
    """A recommender: two large tables and a few layers."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(30_000, 32), nn.Embedding(20_000, 32)
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x: Tensor) -> Tensor:
        both = (self.users(x[:, 0]), self.items(x[:, 1]))
        return self.layers(torch.cat(both, 1))  # type: ignore[no-any-return]


MODELS: tuple[tuple[Callable[[], nn.Module], Callable[[], Tensor]], ...] = (
    (Layers, lambda: torch.randn(8, 3, 48, 48)),
    (Tokens, lambda: torch.randint(2000, (4, 32))),
    (Tables, lambda: torch.randint(20_000, (256, 2))),
)


#: Many small parameters, and as many as a GPU trains: 25 and 65 million.
ON_GPUS: tuple[tuple[Callable[[], nn.Module], Callable[[], Tensor]], ...] = (
    MODELS[0],
    (lambda: Tokens(768, 4), MODELS[1][1]),
    (lambda: Tokens(1536, 3), MODELS[1][1]),
)


class Loops:
    """The updates of a model's parameters, by hand and as torch has them."""

    def __init__(self, model: nn.Module) -> None:
        self.own: list[Tensor] = list(model.parameters())
        self.first = [torch.zeros_like(one) for one in self.own]
        self.second = [torch.zeros_like(one) for one in self.own]
        self.average = [one.detach().clone() for one in self.own]
        self.fused_adam = torch.optim.AdamW(self.own, lr=LR, fused=True)
        self.fused_sgd = torch.optim.SGD(self.own, lr=LR, momentum=FIRST, fused=True)

    def gradients(self) -> list[Tensor]:
        return [one.grad for one in self.own if one.grad is not None]

    def adam_in_new_tensors(self) -> None:
        for at, (one, grad) in enumerate(zip(self.own, self.gradients(), strict=True)):
            self.first[at] = FIRST * self.first[at] + (1 - FIRST) * grad
            self.second[at] = SECOND * self.second[at] + (1 - SECOND) * grad * grad
            mean, square = self.first[at] / (1 - FIRST), self.second[at] / (1 - SECOND)
            one.copy_(one * (1 - DECAY) - LR * mean / (torch.sqrt(square) + EPS))

    def adam_in_place(self) -> None:
        for one, grad, first, second in zip(self.own, self.gradients(), self.first, self.second, strict=True):
            one.mul_(1 - DECAY)
            first.mul_(FIRST).add_(grad, alpha=1 - FIRST)
            second.mul_(SECOND).addcmul_(grad, grad, value=1 - SECOND)
            one.addcdiv_(first, second.sqrt().add_(EPS), value=-LR)

    def momentum(self) -> None:
        for one, grad, first in zip(self.own, self.gradients(), self.first, strict=True):
            first.mul_(FIRST).add_(grad)
            one.add_(first, alpha=-LR)

    def momentum_in_new_tensors(self) -> None:
        for at, (one, grad) in enumerate(zip(self.own, self.gradients(), strict=True)):
            self.first[at] = FIRST * self.first[at] + grad
            one.copy_(one - LR * self.first[at])

    def momentum_of_lists(self) -> None:
        torch._foreach_mul_(self.first, FIRST)
        torch._foreach_add_(self.first, self.gradients())
        torch._foreach_add_(self.own, self.first, alpha=-LR)

    def sgd(self) -> None:
        for one, grad in zip(self.own, self.gradients(), strict=True):
            one.sub_(LR * grad)

    def sgd_of_lists(self) -> None:
        torch._foreach_add_(self.own, self.gradients(), alpha=-LR)

    def averaging(self) -> None:
        for average, one in zip(self.average, self.own, strict=True):
            average.mul_(KEPT).add_(one, alpha=1 - KEPT)

    def averaging_in_new_tensors(self) -> None:
        for average, one in zip(self.average, self.own, strict=True):
            average.copy_(KEPT * average + (1 - KEPT) * one)

    def averaging_of_lists(self) -> None:
        torch._foreach_lerp_(self.average, self.own, 1 - KEPT)

    def clipping(self) -> None:
        whole = sum(grad.norm(2).item() ** 2 for grad in self.gradients()) ** 0.5
        for one in self.own:
            one.grad = one.grad * min(1.0, 1.0 / (whole + EPS)) if one.grad is not None else None

    def clipping_as_built_in(self) -> None:
        nn.utils.clip_grad_norm_(self.own, 1.0, foreach=False)

    def clipping_of_lists(self) -> None:
        nn.utils.clip_grad_norm_(self.own, 1.0, foreach=True)

    def pairs(self) -> tuple[tuple[Update, Update], ...]:
        """Return each way by hand with what torch has in its place."""
        adam, sgd = no_result(self.fused_adam.step), no_result(self.fused_sgd.step)
        return (
            (self.adam_in_new_tensors, adam), (self.adam_in_place, adam),
            (self.momentum_in_new_tensors, sgd), (self.momentum, sgd), (self.momentum, self.momentum_of_lists),
            (self.sgd, self.sgd_of_lists),
            (self.averaging_in_new_tensors, self.averaging_of_lists), (self.averaging, self.averaging_of_lists),
            (self.clipping, self.clipping_of_lists), (self.clipping_as_built_in, self.clipping_of_lists),
        )  # fmt: skip


def no_result(step: Callable[[], object]) -> Update:
    def fused() -> None:
        step()

    return fused


def took_ms(model: nn.Module, x: Tensor, update: Update) -> float:
    """Return what an update takes behind a forward and a backward pass, ms of its core."""
    model.zero_grad()
    model(x).square().mean().backward()
    dist.barrier()
    begun = time.thread_time()
    with torch.no_grad():
        update()
    return (time.thread_time() - begun) * 1e3


def shares(rounds: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    by_hand, as_torch = (statistics.median(column) for column in zip(*rounds, strict=True))
    return by_hand, as_torch, 1 - as_torch / by_hand


def of_device(rounds: int) -> None:
    """Print what torch's own operators give back on a GPU."""
    print(
        "parameters\tby_hand\tas_torch\tby_hand_ms\tas_torch_ms\tgiven_back\tby_hand_host_ms\tas_torch_host_ms\thost_back"
    )
    for kind, inputs in ON_GPUS:
        model, x = kind().cuda(), inputs().cuda()
        model(x).square().mean().backward()
        size = f"{len(list(model.parameters()))} of {sum(one.numel() for one in model.parameters()) / 1e6:.1f} million"
        loops = Loops(model)
        single = torch.optim.AdamW(loops.own, lr=LR, foreach=False, fused=False)
        adam_by_torch = no_result(single.step)
        adam_by_torch.__name__ = "single"
        with torch.no_grad():
            for by_hand, as_torch in ((adam_by_torch, no_result(loops.fused_adam.step)), *loops.pairs()):
                if "clipping" not in by_hand.__name__:
                    own, other = shortest_in_turns([by_hand, as_torch], rounds)
                    names = f"{by_hand.__name__}\t{as_torch.__name__}"
                    print(f"{size}\t{names}\t{given_back(own, other)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    if args.device == "cuda":
        of_device(args.rounds)
        return
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        print("model\tby_hand\tas_torch\tby_hand_ms\tas_torch_ms\tgiven_back", flush=True)
    for kind, inputs in MODELS:
        model, x = kind(), inputs()
        for by_hand, as_torch in Loops(model).pairs():
            both = [(took_ms(model, x, by_hand), took_ms(model, x, as_torch)) for _ in range(args.rounds + 2)]
            own, other, share = shares(both[2:])
            if rank == 0:
                names = f"{by_hand.__name__}\t{as_torch.__name__}"
                print(f"{kind.__name__}\t{names}\t{own:.2f}\t{other:.2f}\t{share:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
