"""What causes do outside of layers."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from varied.layers import CUDA, Injected

Step = Callable[[str | None], None]

#: How long a host is disturbed for, s.
_UNIT_S = 0.012 if CUDA else 0.02
_OWN_PRODUCTS, _BESIDE_PRODUCTS = 60, 30


class Causes:
    """Disturbs a job from outside of its layers, where the job says that a step has come to a place."""

    #: Each step ends by reading its loss, on all ranks: no host is ahead of its device, and none has to be held up.
    read_loss = False

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device()) if CUDA else torch.device("cpu")
        self.last = dist.get_rank() == dist.get_world_size() - 1
        edge = 4096 if CUDA else 256
        self._square = torch.randn(edge, edge, device=self.device, dtype=torch.bfloat16)
        self._aside = torch.cuda.Stream() if CUDA else None
        self._hosted = torch.randn(3_000_000 if CUDA else 300_000)
        self._extra = torch.zeros(16_000_000 if CUDA else 200_000, device=self.device)

    @contextmanager
    def within(self, cause: str | None) -> Iterator[None]:
        """Disturb what runs inside: by its layers, or from beside."""
        Injected.cause = cause
        if cause == "cotenant" and self.last and self._aside is not None:
            with torch.cuda.stream(self._aside):
                self._multiply(_BESIDE_PRODUCTS)
        yield
        Injected.cause = None

    def load(self, cause: str | None) -> None:
        if cause == "load_all" or (cause == "load_one" and self.last):
            with torch.profiler.record_function("dataloader.next"):
                self._compute_once_device_is_done()

    def between(self, cause: str | None) -> None:
        """Disturb at the one place of a step that lies between what it launches."""
        if cause == "stall_all" or (cause == "stall_one" and self.last):
            self._wait()
            time.sleep(_UNIT_S)
        elif cause == "python_one" and self.last:
            self._compute_once_device_is_done()
        elif cause == "own" and self.last:
            self._multiply(_OWN_PRODUCTS)
        elif cause == "pageable_one" and self.last:
            for _ in range(4):
                self._hosted.to(self.device)
        elif cause == "empty_cache" and CUDA:
            torch.cuda.empty_cache()
        elif cause == "extra_reduce":
            for _ in range(4):
                dist.all_reduce(self._extra)

    def _compute_once_device_is_done(self) -> None:
        self._wait()  # a host that is ahead by more would hide it
        until, held = time.perf_counter() + _UNIT_S, dict[int, str]()
        while time.perf_counter() < until:
            held[len(held) % 1000] = str(len(held))

    def _wait(self) -> None:
        if CUDA and not self.read_loss:
            torch.cuda.current_stream().synchronize()

    def _multiply(self, times: int) -> None:
        for _ in range(times):
            torch.mm(self._square, self._square)


def reading_loss(step: Step) -> Step:
    """Return a job's step with its end as in most loops, which log the loss of each step."""
    device = torch.device("cuda", torch.cuda.current_device()) if CUDA else torch.device("cpu")

    def both(cause: str | None) -> None:
        step(cause)
        torch.ones(1, device=device).mean().item()  # behind all that the step has launched

    return both


def read_norms(model: nn.Module) -> list[float]:
    """Read the norm of each gradient by itself, as what is logged."""
    return [parameter.grad.norm().item() for parameter in model.parameters() if parameter.grad is not None]
