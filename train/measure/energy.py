"""What power the device drew over the steps that were read last: two readings of its energy counter and a clock."""

import math
import time
from collections.abc import Callable, Sequence

from scalescope.hardware.energy import EnergyCounter

_AGREE = 0.1  # how far the wall time may be from the steps' own
_LEAST_S = 0.2  # counters are brought up to date some ten times a second


class PowerMeter:
    """Read now and then, in a steady state; a stretch with something else in it tells nothing about its steps.

    The device is some steps behind the host that reads, so that a reading's joules are not exactly its steps'. Its
    watts are, where the power is steady.
    """

    def __init__(self, counter: EnergyCounter | None, now_s: Callable[[], float] = time.monotonic) -> None:
        self._counter = counter
        self._now_s = now_s
        self._before: tuple[float, float] | None = None  # seconds, joules

    def watts(self, steps_ms: Sequence[float]) -> float:
        """Return the mean power since the last reading, in which these steps ran; NaN where it is not theirs alone."""
        joules = self._counter.joules() if self._counter is not None else None
        if joules is None:
            return math.nan
        before, now = self._before, (self._now_s(), joules)
        self._before = now
        if before is None:
            return math.nan
        passed_s, took_s = now[0] - before[0], sum(steps_ms) / 1e3
        if passed_s < _LEAST_S or abs(passed_s - took_s) > _AGREE * took_s:
            return math.nan
        used = now[1] - before[1]
        # a counter that wrapped or was reset goes back, and one that stands still counts nothing: no device draws none
        return used / passed_s if used > 0 else math.nan
