"""A figure that is not known exactly: its best value, and what 95 of 100 of its kind lie between."""

import msgspec


class Interval(msgspec.Struct, frozen=True):
    """`low` ≤ `value` ≤ `high`, all in one unit."""

    value: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half of the interval's width."""
        return (self.high - self.low) / 2

    def __contains__(self, measured: float) -> bool:
        return self.low <= measured <= self.high
