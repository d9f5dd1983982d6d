"""A collective while the device computes: what each of the two costs the other.

In training, all-reduce shares multiprocessors and memory with the backward pass. Here a chain of matrix products
runs on a stream of its own while collectives are timed, and the other way round; both against the time alone.
"""

import math
from collections.abc import Callable

import torch

from collectives.operations.operation import NotAvailable
from collectives.timing import Clock

_SIDE = 8192  # of the square matrices: every multiprocessor has work, for about a millisecond
_MEASURED = 20  # matrix products that are timed
_COVER = 3  # times the expected length, so that what disturbs outlasts what is timed


class Compute:
    """Matrix products on a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        if device.type != "cuda":
            raise NotAvailable("contention runs a matrix product on a stream beside, and CPUs have no streams")
        self._stream = torch.cuda.Stream(device)
        with torch.cuda.stream(self._stream):
            self._a = torch.randn(_SIDE, _SIDE, device=device, dtype=torch.bfloat16)
            self._b = torch.randn(_SIDE, _SIDE, device=device, dtype=torch.bfloat16)
            self._out = torch.empty_like(self._a)
        self.run(3)
        self._stream.synchronize()
        self.alone_s = self.time()

    def run(self, count: int) -> None:
        """Enqueue so many products."""
        with torch.cuda.stream(self._stream):
            for _ in range(count):
                torch.mm(self._a, self._b, out=self._out)

    def time(self, meanwhile: Callable[[], None] = lambda: None) -> float:
        """Return the seconds of one product; `meanwhile` enqueues what the device does beside."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record(self._stream)
        self.run(_MEASURED)
        end.record(self._stream)
        meanwhile()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / _MEASURED

    def cover(self, seconds: float) -> None:
        """Enqueue products that outlast so many seconds."""
        self.run(max(2, math.ceil(_COVER * seconds / self.alone_s)))

    def settle(self) -> None:
        self._stream.synchronize()


class ContendedClock:
    """A clock whose calls run while the device computes."""

    def __init__(self, clock: Clock, compute: Compute, alone_s: float) -> None:
        self._clock, self._compute, self._alone_s = clock, compute, alone_s

    def batch(self, run: Callable[[int], None], count: int) -> float:
        self._compute.cover(count * self._alone_s)
        taken = self._clock.batch(run, count)
        self._compute.settle()
        return taken

    def each(self, run: Callable[[int], None], count: int) -> list[float]:
        self._compute.cover(count * self._alone_s)
        taken = self._clock.each(run, count)
        self._compute.settle()
        return taken


def calls_beside(compute: Compute, alone_s: float) -> int:
    """Return how many calls outlast the products that are timed. Ranks differ: one decides for all."""
    return max(2, math.ceil(_COVER * _MEASURED * compute.alone_s / max(alone_s, 1e-9)))


def compute_slowdown(run: Callable[[int], None], calls: int, compute: Compute, device: torch.device) -> float:
    """Return how many times longer a product takes while so many collectives run."""
    taken = compute.time(meanwhile=lambda: run(calls))
    torch.cuda.current_stream(device).synchronize()
    return taken / compute.alone_s
