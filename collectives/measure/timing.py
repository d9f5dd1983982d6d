"""How long a collective takes: one engine for every operation, transport and device.

As nccl-tests does, operations run back to back without a synchronisation between them, and a batch's time over its
count is averaged over the ranks. Every batch begins with one untimed operation, which brings the ranks together
better than any barrier on the host. Batches repeat until the 95% interval of their mean is narrow enough or the
budget is spent; the group's first rank decides for all, from its own clock.

A batch in which the host was held up for milliseconds says nothing about the collective: torch's NCCL watchdog, for
one, stops every enqueueing while it walks through the operations of its last 100 ms. Such batches are left out of
the mean, and counted, as long as they are few.

Minimum, maximum and percentiles come from a separate pass that times each operation by itself. Timing every
operation slows small ones, so that pass has no say in the mean, and has a mean of its own beside its percentiles.
"""

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch

from scalescope.collectives.transports.messages import Messages
from scalescope.collectives.transports.rotation import Run
from scalescope.records.statistics import student_95

_BATCHES = 5  # at least so many before an interval is believed
#: A batch is long against what starting and stopping its clock takes: a microsecond of events on a stream, or of the
#: host's clock over calls that return when they are done; 10 to 15 µs where the host waits for a GPU's stream, which
#: also idles until the first call reaches it.
BATCH_S, STREAM_BATCH_S = 1e-3, 5e-3
_STALL = 1.25  # times the median: a batch beyond it, and beyond five deviations, was held up
_STALLS_SHARE = 10  # at most one batch in so many; more of them are no stalls, but how long the operation takes
_LEAST_BATCHES = 2  # without two there is no interval at all


@dataclass(frozen=True)
class Limits:
    """When a measurement has enough."""

    min_iterations: int
    max_iterations: int
    budget_s: float
    relative_interval: float
    percentile_iterations: int


@dataclass(frozen=True)
class Spread:
    """What the pass that times each operation by itself tells, in microseconds; None where there was no such pass."""

    time_each_us: float | None = None  # the mean
    time_min_us: float | None = None
    time_max_us: float | None = None
    time_p50_us: float | None = None
    time_p95_us: float | None = None
    time_p99_us: float | None = None
    slowest_rank: int | None = None  # in the group


@dataclass(frozen=True)
class PointTiming:
    """A point's time for one operation, in microseconds."""

    time_us: float
    interval_us: tuple[float, float]
    stopped_by: str  # precision | budget
    iterations: int
    stalls: int  # batches left out of the mean
    spread: Spread = Spread()


class Clock(Protocol):
    """A way to time calls, in seconds."""

    @property
    def batch_s(self) -> float:
        """How long a batch should be, so that starting and stopping the clock does not count."""

    def batch(self, run: Run, count: int) -> float:
        """Return the time of `count` calls back to back, after one that is not counted."""

    def each(self, run: Run, count: int) -> list[float]:
        """Return the time of each of `count` calls."""


class HostClock:
    """The host's steady clock, as nccl-tests. On a GPU a batch ends when the stream has done it."""

    def __init__(self, device: torch.device) -> None:
        self._settle: Callable[[], object] = (
            torch.cuda.current_stream(device).synchronize if device.type == "cuda" else lambda: None
        )
        self.batch_s = STREAM_BATCH_S if device.type == "cuda" else BATCH_S

    def batch(self, run: Run, count: int) -> float:
        run(1)
        self._settle()
        start = time.perf_counter()
        run(count)
        self._settle()
        return time.perf_counter() - start

    def each(self, run: Run, count: int) -> list[float]:
        run(1)
        self._settle()
        marks = [time.perf_counter()]
        for _ in range(count):
            run(1)
            self._settle()
            marks.append(time.perf_counter())
        return [end - start for start, end in pairwise(marks)]


class DeviceClock:
    """Events on the stream that the operations run on."""

    batch_s = BATCH_S

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.current_stream(device)
        self._events: list[torch.cuda.Event] = []

    def batch(self, run: Run, count: int) -> float:
        start, end = self._take(2)
        run(1)
        start.record(self._stream)
        run(count)
        end.record(self._stream)
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def each(self, run: Run, count: int) -> list[float]:
        marks = self._take(count + 1)
        run(1)
        marks[0].record(self._stream)
        for mark in marks[1:]:
            run(1)
            mark.record(self._stream)
        marks[-1].synchronize()
        return [start.elapsed_time(end) / 1e3 for start, end in pairwise(marks)]

    def _take(self, count: int) -> list[torch.cuda.Event]:
        while len(self._events) < count:
            self._events.append(torch.cuda.Event(enable_timing=True))
        return self._events[:count]


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python's garbage collector out: with torch loaded, one full collection takes some 10 ms."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_no_collection()
def measure(
    run: Run,
    clock: Clock,
    messages: Messages,
    limits: Limits,
    expect: Callable[[float], None],
    operations_per_call: int = 1,
) -> PointTiming | None:
    """Measure until it is precise enough or the budget is spent. Returns the timing on the group's first rank.

    `run(k)` makes k calls, each of `operations_per_call` operations (a captured graph holds many). `expect` is told
    before each piece of work how long it should take.
    """
    started = time.perf_counter()
    expect(0)
    estimate_s = clock.batch(run, 1)
    count = messages.tell(first_batch(estimate_s, limits, clock.batch_s, operations_per_call))
    samples: list[float] = []
    reason = ""
    calls = 0
    while count:
        expect(count * estimate_s)
        times = messages.gather([clock.batch(run, count)])
        calls += count
        if times is not None:
            call_s = statistics.fmean(value for (value,) in times) / count
            samples.append(call_s / operations_per_call)
            reason = verdict(samples, calls * operations_per_call, time.perf_counter() - started, limits)
            longer = first_batch(call_s, limits, clock.batch_s, operations_per_call)
            if longer > 2 * count:  # one call was a bad estimate: such short batches would time the clock's own work
                samples, calls, reason, count = [], 0, "", longer
        count = messages.tell(0 if reason else count)
    if samples:  # the first rank, which decides how many operations are timed one by one
        estimate_s = statistics.median(samples) * operations_per_call
    spread = _spread(run, clock, messages, limits, estimate_s, expect, operations_per_call)
    if not messages.leads:
        return None
    typical = without_stalls(samples)
    mean, half = mean_and_half_interval(typical)
    return PointTiming(
        time_us=mean * 1e6,
        interval_us=(max(0.0, mean - half) * 1e6, (mean + half) * 1e6),
        stopped_by=reason,
        iterations=calls * operations_per_call,
        stalls=len(samples) - len(typical),
        spread=spread,
    )


def first_batch(estimate_s: float, limits: Limits, batch_s: float = BATCH_S, operations_per_call: int = 1) -> int:
    """Return the calls of a batch: a fifth of the least iterations or more, unless even that would break the budget."""
    least = max(1, math.ceil(limits.min_iterations / _BATCHES / operations_per_call))
    most = max(least, limits.max_iterations // _BATCHES // operations_per_call)
    estimate_s = max(estimate_s, 1e-9)
    count = min(max(round(batch_s / estimate_s), least), most)
    affordable = int(limits.budget_s / _BATCHES / estimate_s)
    return max(1, min(count, affordable))


def verdict(samples: Sequence[float], iterations: int, spent_s: float, limits: Limits) -> str:
    """Return why measuring ends here, precision or budget, or nothing where it goes on."""
    if len(samples) >= _BATCHES and iterations >= limits.min_iterations:
        mean, half = mean_and_half_interval(without_stalls(samples))
        if half <= limits.relative_interval * mean:
            return "precision"
    if len(samples) >= _LEAST_BATCHES and (spent_s >= limits.budget_s or iterations >= limits.max_iterations):
        return "budget"
    return ""


def without_stalls(samples: Sequence[float]) -> Sequence[float]:
    """Return the batches without those in which the host was held up; all of them where too many look so."""
    median = statistics.median(samples)
    deviation = 1.4826 * statistics.median(abs(sample - median) for sample in samples)  # a normal one's sigma
    limit = max(_STALL * median, median + 5 * deviation)
    kept = [sample for sample in samples if sample <= limit]
    return kept if len(samples) - len(kept) <= len(samples) // _STALLS_SHARE else samples


def mean_and_half_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the batches and half of its 95% interval (Student's t)."""
    degrees = len(samples) - 1
    return statistics.fmean(samples), student_95(degrees) * statistics.stdev(samples) / math.sqrt(len(samples))


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """Return the smallest value that so many percent of the ordered values do not exceed (nearest rank).

    None of values too few to tell it from their maximum: p99 needs a hundred.
    """
    if len(ordered) * (100 - percent) < 100:
        return None
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _spread(
    run: Run,
    clock: Clock,
    messages: Messages,
    limits: Limits,
    estimate_s: float,
    expect: Callable[[float], None],
    operations_per_call: int,
) -> Spread:
    """Time operations one by one; an operation is as long as on the rank where it took longest."""
    affordable = int(limits.budget_s / _BATCHES / max(estimate_s, 1e-9))
    count = messages.tell(min(limits.percentile_iterations, max(affordable, _BATCHES)))
    if count == 0:
        return Spread()
    expect(count * estimate_s)
    by_rank = messages.gather(clock.each(run, count))
    if by_rank is None:
        return Spread()
    longest = sorted(max(times) / operations_per_call * 1e6 for times in zip(*by_rank, strict=True))
    return Spread(
        time_each_us=statistics.fmean(longest),
        time_min_us=longest[0],
        time_max_us=longest[-1],
        time_p50_us=percentile(longest, 50),
        time_p95_us=percentile(longest, 95),
        time_p99_us=percentile(longest, 99),
        slowest_rank=slowest(by_rank, limits.relative_interval),
    )


def slowest(by_rank: Sequence[Sequence[float]], precision: float) -> int | None:
    """Return the rank whose median operation is longest; None where it is not longer by more than the precision."""
    medians = [statistics.median(times) for times in by_rank]
    longest = max(medians)
    return medians.index(longest) if longest > (1 + precision) * statistics.median(medians) else None
