"""The cost model's own test: the largest group that was measured, predicted from the smaller ones alone."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from scalescope.scaling.costs.interval import Interval

if TYPE_CHECKING:
    from scalescope.scaling.costs.points import Point

#: From here on a prediction is judged; below, a time is the host's more than the links'.
JUDGED_BYTES = 1 << 20
CLOSE = 0.10
_Z95 = 1.96


class HeldOut(msgspec.Struct, frozen=True):
    """One point of the largest group: measured, and predicted without it."""

    bytes: int
    measured_us: float
    measured_half_us: float  # half of the measurement's own 95% interval
    predicted_us: Interval
    off: float  # predicted over measured, minus 1
    inside: bool  # no further apart than both intervals allow


class Holdout(msgspec.Struct, frozen=True):
    """How well an operation's time at the largest group follows from the smaller ones."""

    operation: str
    dtype: str
    group_size: int
    from_group_sizes: list[int]
    points: list[HeldOut]

    @property
    def judged(self) -> list[HeldOut]:
        return [point for point in self.points if point.bytes >= JUDGED_BYTES]

    @property
    def close(self) -> int:
        """How many of the judged are within 10%."""
        return sum(abs(point.off) <= CLOSE for point in self.judged)

    @property
    def inside(self) -> int:
        """How many of the judged lie inside their interval."""
        return sum(point.inside for point in self.judged)

    @property
    def worst(self) -> HeldOut | None:
        return max(self.judged, key=lambda point: abs(point.off), default=None)


def hold_out(operation: str, dtype: str, points: "Sequence[Point]") -> Holdout | None:
    """Return the check of an operation's points; None where they are of one group size."""
    groups = sorted({point.group_size for point in points})
    if len(groups) < 2:
        return None
    from scalescope.scaling.costs.fit import fit  # numpy's random numbers: whoever reads an answer needs none

    fitted = fit(operation, dtype, [point for point in points if point.group_size < groups[-1]])
    held = []
    for point in sorted(points, key=lambda point: point.bytes):
        if point.group_size != groups[-1]:
            continue
        predicted = fitted.time_us(point.bytes, point.group_size)
        own = _Z95 * point.error * point.time_us
        room = predicted.high - predicted.value if point.time_us > predicted.value else predicted.value - predicted.low
        held.append(
            HeldOut(
                bytes=point.bytes,
                measured_us=point.time_us,
                measured_half_us=own,
                predicted_us=predicted,
                off=predicted.value / point.time_us - 1,
                inside=abs(point.time_us - predicted.value) <= math.hypot(room, own),
            )
        )
    return Holdout(operation, dtype, groups[-1], groups[:-1], held)
