"""How long a collective of another size takes alone: the small interface that any model of collectives can fill."""

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.replay.graph import Transfer

if TYPE_CHECKING:  # most traces come without a sweep
    from scalescope.scaling.costs.model import CostModel

#: What a collective of no bytes takes, where nothing measured tells, µs: a launch, and a round through the ranks.
_LATENCY_US = 20.0
#: How far a line through a trace's own sizes may be off at others.
_BEYOND = 0.25
#: How many times the largest size of a trace a line through its sizes still tells of.
_FARTHEST = 32


class CollectiveTimes(Protocol):
    """Times of collectives that nothing runs beside."""

    @property
    def source(self) -> str:
        """Where the times come from, in words."""
        ...

    def time_us(self, operation: str, size: int, dtype: str | None, group_size: int) -> Interval | None:
        """Return the time of one of `size` bytes; None where it is not known."""
        ...


class ModelTimes:
    """The cost model fitted on the study's sweep."""

    source = "the cost model of the sweep"

    def __init__(self, model: "CostModel") -> None:
        self._model = model

    def time_us(self, operation: str, size: int, dtype: str | None, group_size: int) -> Interval | None:
        """Return the time of one of `size` bytes; None where the sweep cannot tell."""
        from scalescope.scaling.costs.model import NotKnown

        try:
            return self._model.time_us(operation, size, dtype or "float32", group_size)
        except NotKnown:
            return None


class TraceTimes:
    """A line through the trace's own transfers: t₀ + β × bytes, where there is no sweep."""

    source = "the trace's own collectives: a line through them"

    def __init__(self, transfers: Sequence[Transfer]) -> None:
        self._lines: dict[tuple[str, int], tuple[float, float, int, int]] = {}
        kinds: dict[tuple[str, int], list[tuple[int, float]]] = {}
        for one in transfers:
            if one.bytes and one.work_ns > 0:
                kinds.setdefault((one.operation, one.group_size), []).append((one.bytes, one.work_ns / 1e3))
        for kind, points in kinds.items():
            sizes = [size for size, _ in points]
            self._lines[kind] = (*_line(points), min(sizes), max(sizes))

    def time_us(self, operation: str, size: int, dtype: str | None, group_size: int) -> Interval | None:
        """Return the time of one of `size` bytes, ± a quarter away from the sizes that the trace has.

        None far above them: a slope through small ones says nothing of bandwidth.
        """
        line = self._lines.get((operation, group_size))
        if line is None or size > _FARTHEST * line[3]:
            return None
        latency, slope, smallest, largest = line
        time = latency + slope * size
        beyond = not smallest <= size <= largest
        return Interval(time, time * (1 - _BEYOND * beyond), time * (1 + _BEYOND * beyond))


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
