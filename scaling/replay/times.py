"""How long a collective of another size takes alone: the small interface that any model of collectives can fill."""

import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

from records.rows import SweepRow
from scaling.replay.graph import Transfer

#: What a collective of no bytes takes, where nothing measured tells, µs: a launch, and a round through the ranks.
_LATENCY_US = 20.0


class CollectiveTimes(Protocol):
    """Times of collectives that nothing runs beside."""

    @property
    def source(self) -> str:
        """Where the times come from, in words."""
        ...

    def time_us(self, operation: str, size: int, dtype: str | None, group_size: int) -> float | None:
        """Return the time of one of `size` bytes; None where it is not known."""
        ...


class SweepTimes:
    """Log-log interpolation of a sweep's rows, eager and measured.

    A larger transfer takes no less than a smaller one: what a row took longer than a larger one was the host's doing.
    Below the smallest size its time stands, above the largest it grows with the size.
    """

    source = "the sweep's rows, interpolated"

    def __init__(self, rows: Sequence[SweepRow]) -> None:
        self._curves: dict[tuple[str, int], dict[str, dict[int, float]]] = {}
        for row in rows:
            plain = row.status == "measured" and row.execution == "eager" and row.time_us
            if not plain or row.path != "c10d" or getattr(row, "contention", None) not in (None, "none"):
                continue
            assert row.time_us is not None
            curve = self._curves.setdefault((row.operation, row.group_size), {}).setdefault(row.dtype, {})
            curve[row.bytes] = min(row.time_us, curve.get(row.bytes, math.inf))
        for curves in self._curves.values():
            for curve in curves.values():
                least = math.inf
                for size in sorted(curve, reverse=True):
                    least = curve[size] = min(least, curve[size])

    def time_us(self, operation: str, size: int, dtype: str | None, group_size: int) -> float | None:
        curves = self._curves.get((operation, group_size))
        if not curves:
            return None
        # bytes are what travels; what another dtype's reduction costs more is far below the links' time
        return _interpolate(curves.get(dtype or "", next(iter(curves.values()))), size)


class TraceTimes:
    """A line through the trace's own transfers: t₀ + β × bytes, where there is no sweep."""

    source = "the trace's own collectives: a line through them"

    def __init__(self, transfers: Sequence[Transfer]) -> None:
        self._lines: dict[tuple[str, int], tuple[float, float]] = {}
        kinds: dict[tuple[str, int], list[tuple[int, float]]] = {}
        for one in transfers:
            if one.bytes and one.work_ns > 0:
                kinds.setdefault((one.operation, one.group_size), []).append((one.bytes, one.work_ns / 1e3))
        for kind, points in kinds.items():
            self._lines[kind] = _line(points)

    def time_us(self, operation: str, size: int, dtype: str | None, group_size: int) -> float | None:
        line = self._lines.get((operation, group_size))
        return None if line is None else line[0] + line[1] * size


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return (t₀, β) through points (bytes, µs): between the medians of the small and of the large ones."""
    sizes = sorted({size for size, _ in points})
    middle = math.sqrt(sizes[0] * sizes[-1])
    small = [point for point in points if point[0] <= middle]
    large = [point for point in points if point[0] > middle]
    if sizes[-1] >= 2 * sizes[0] and small and large:
        left = statistics.median(size for size, _ in small), statistics.median(time for _, time in small)
        right = statistics.median(size for size, _ in large), statistics.median(time for _, time in large)
        slope = (right[1] - left[1]) / (right[0] - left[0])
        latency = left[1] - slope * left[0]
        if slope > 0 and 0 <= latency <= left[1]:
            return latency, slope
    size, time = statistics.median(size for size, _ in points), statistics.median(time for _, time in points)
    latency = min(_LATENCY_US, time / 2)
    return latency, (time - latency) / size


def _interpolate(curve: dict[int, float], size: int) -> float:
    sizes = sorted(curve)
    at = bisect_left(sizes, size)
    if at == 0:
        return curve[sizes[0]]
    if at == len(sizes):
        return curve[sizes[-1]] * size / sizes[-1]
    low, high = sizes[at - 1], sizes[at]
    share = math.log(size / low) / math.log(high / low)
    return math.exp(math.log(curve[low]) * (1 - share) + math.log(curve[high]) * share)
