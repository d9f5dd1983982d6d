"""A collective while the device computes: what each of the two costs the other.

In training, all-reduce shares multiprocessors and memory with the backward pass. Here a chain of matrix products
runs on a stream of its own while collectives are timed, and the other way round; both against the time alone.
"""

import math
from collections.abc import Callable
from typing import TypeVar

import torch

from scalescope.collectives.measure.timing import BATCH_S, Clock
from scalescope.collectives.operations.operation import NotAvailable
from scalescope.collectives.transports.messages import Messages
from scalescope.collectives.transports.rotation import Run

_Taken = TypeVar("_Taken", float, list[float])

_SIDE = 8192  # of the square matrices: every multiprocessor has work, for about a millisecond
_MEASURED = 20  # matrix products that are timed
_COVER = 3  # times the expected length, so that what disturbs outlasts what is timed
_TRIED = 5  # calls of a trial batch
_TRIALS = 16  # each with twice the products of the one before
_PATIENCE_S = 10.0  # of products in one trial: a collective that waits for all of them would wait for ever longer ones
_FORGIVEN = 5  # of so many batches one may outlast its products, for a host that was held up; of many, a tenth


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
        return float(start.elapsed_time(end)) / 1e3 / _MEASURED

    def cover(self, seconds: float) -> None:
        """Enqueue products that outlast so many seconds."""
        self.run(max(2, math.ceil(_COVER * seconds / self.alone_s)))

    def busy(self) -> bool:
        """Return whether products still run."""
        return not self._stream.query()

    def settle(self) -> None:
        self._stream.synchronize()


class ContendedClock:
    """A clock whose calls run while the device computes, from the first to the last."""

    batch_s = BATCH_S  # whatever the clock below: products have to outlast it

    def __init__(self, clock: Clock, compute: Compute, call_s: float) -> None:
        """Time with `clock`; a call is expected to take `call_s` beside the products."""
        self._clock, self._compute, self._call_s = clock, compute, call_s
        self._batches = self._uncovered = 0

    @classmethod
    def covering(
        cls,
        run: Run,
        clock: Clock,
        compute: Compute,
        alone_s: float,
        messages: Messages,
        expect: Callable[[float], None],
    ) -> "ContendedClock":
        """Return a clock whose products outlast the calls, on every rank of the group.

        A call takes `alone_s` alone, and may take a hundred times that beside the products, since its blocks wait for
        multiprocessors: so it is tried. Raises NotAvailable, on every rank alike, where no products suffice.
        """
        call_s = alone_s
        for _ in range(_TRIALS):
            trial = cls(clock, compute, call_s)
            expect(_COVER * (_TRIED + 1) * call_s)
            taken_s = trial.batch(run, _TRIED) / _TRIED
            if messages.least(int(trial.covers)):
                return cls(clock, compute, max(call_s, taken_s))
            call_s = max(2 * call_s, taken_s)
            if not messages.least(int(_COVER * (_TRIED + 1) * call_s < _PATIENCE_S)):
                break
        raise NotAvailable("the collective outlasts whatever matrix products run beside it")

    @property
    def covers(self) -> bool:
        """Whether the products outlasted what was timed, but for few batches."""
        allowed = max(1, self._batches // 10) if self._batches >= _FORGIVEN else 0
        return self._uncovered <= allowed

    def batch(self, run: Run, count: int) -> float:
        return self._concurrently(count, lambda: self._clock.batch(run, count))

    def each(self, run: Run, count: int) -> list[float]:
        return self._concurrently(count, lambda: self._clock.each(run, count))

    def _concurrently(self, count: int, timed: Callable[[], _Taken]) -> _Taken:
        self._compute.cover((count + 1) * self._call_s)  # one call is not counted
        taken = timed()
        self._batches += 1
        self._uncovered += not self._compute.busy()
        self._compute.settle()
        return taken


def concurrent_calls(compute: Compute, alone_s: float) -> int:
    """Return how many calls outlast the products that are timed. Ranks differ: one decides for all."""
    return max(2, math.ceil(_COVER * _MEASURED * compute.alone_s / max(alone_s, 1e-9)))


def compute_slowdown(run: Run, calls: int, compute: Compute, device: torch.device) -> float:
    """Return how many times longer a product takes while so many collectives run."""
    taken = compute.time(meanwhile=lambda: run(calls))
    torch.cuda.current_stream(device).synchronize()
    return taken / compute.alone_s
