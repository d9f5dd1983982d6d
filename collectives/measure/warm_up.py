"""Runs operations until they get no faster: a series' first size is else its coldest.

Connections are made, clocks rise, caches fill and pages are touched in the first tenths of a second, whatever the
operation. How long that takes nobody knows beforehand, so pieces are timed until the last ones are as slow as those
before them; the group's first rank decides for all.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scalescope.collectives.measure.timing import Clock
from scalescope.collectives.transports.messages import Messages
from scalescope.collectives.transports.rotation import Run

_ESTIMATES = 3
_COMPARED = 4  # pieces, against as many before them
_FASTER = 0.03  # by so much from four pieces to the next: still warming up
_PIECES = 20  # in the least time


@dataclass(frozen=True)
class WarmUp:
    """How long to warm up: so many operations and seconds at least, and seconds at most."""

    least_calls: int
    least_s: float
    most_s: float

    def has_enough(self, calls: int, pieces: Sequence[float], spent_s: float) -> bool:
        """Return whether it has warmed up: `pieces` are seconds an operation, in order."""
        if calls < self.least_calls:
            return False
        return spent_s >= self.most_s or (spent_s >= self.least_s and is_steady(pieces))


def is_steady(pieces: Sequence[float]) -> bool:
    """Return whether operations have stopped getting faster; what is too little to tell is not steady."""
    if len(pieces) < 2 * _COMPARED:
        return False
    before, last = pieces[-2 * _COMPARED : -_COMPARED], pieces[-_COMPARED:]
    return statistics.median(last) >= (1 - _FASTER) * statistics.median(before)


def estimate_s(run: Run, clock: Clock) -> float:
    """Return about how long one operation takes: the least of a few, since the host may be held up in one."""
    return min(clock.batch(run, 1) for _ in range(_ESTIMATES))


def warm_up(run: Run, clock: Clock, messages: Messages, wanted: WarmUp, expect: Callable[[float], None]) -> None:
    """Run operations until they are steady. `expect` is told before each piece how long it should take."""
    expect(0)
    call_s = max(estimate_s(run, clock), 1e-7)
    piece_s = wanted.least_s / _PIECES
    pieces: list[float] = []
    calls, spent_s = 0, 0.0
    count = messages.tell(max(1, int(piece_s / call_s)))
    while count:
        expect(count * call_s)
        times = messages.gather([clock.batch(run, count)])
        calls += count
        if times is not None:
            took_s = statistics.fmean(value for (value,) in times)
            call_s = max(took_s / count, 1e-7)
            pieces.append(call_s)
            spent_s += took_s
        enough = wanted.has_enough(calls, pieces, spent_s)
        count = messages.tell(0 if enough else max(1, int(piece_s / call_s)))
