"""Columns of integers made of events: starts and ends in integer nanoseconds, arguments, blocks joined at the end."""

from array import array
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from scalescope.scaling.trace.events import AnyEvent
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import HostSpans, Ids

#: What lies beyond is no event's time: a start of 2096, eleven days for one event. The sums of starts, durations and
#: the clock's base then stay within 64 bits of ns.
_FARTHEST_US, _LONGEST_US = 4e15, 1e12


#: Numbers of events and threads, which 32 bits hold in most traces. They are compared, and nothing is added to them.
_NARROW, _WIDE = "i", "q"
_NARROW_LEAST, _NARROW_MOST = -(1 << 31), (1 << 31) - 1


class GrowingColumns:
    """Columns of equal length that grow in place; of 32 bits, until there is a number that needs 64."""

    def __init__(self, width: int) -> None:
        self._columns = [array(_NARROW) for _ in range(width)]
        self.rows = 0

    def append(self, block: list[Ints]) -> None:
        for at, part in enumerate(block):
            column = self._columns[at]
            if column.typecode == _NARROW and part.size and not _is_narrow(part):
                column = self._columns[at] = array(_WIDE, column)
            column.frombytes(part.astype(column.typecode).tobytes())
        self.rows += int(block[0].size)

    def columns(self) -> list[Ints]:
        return [self._column(at).astype(np.int64, copy=False) for at in range(len(self._columns))]

    def spans(self) -> HostSpans:
        times, name = self._columns[:2], self._column(3)
        start, end = (np.frombuffer(one, one.typecode).astype(np.int64, copy=False) for one in times)
        return HostSpans(start, end, self._column(2), ids(name), self._column(4), self._column(5))

    def _column(self, at: int) -> Ints:
        return np.frombuffer(self._columns[at], self._columns[at].typecode)


def _is_narrow(part: Ints) -> bool:
    return bool(part.min() >= _NARROW_LEAST and part.max() <= _NARROW_MOST)


def ids(column: Ints) -> Ids:
    """Return a column of small numbers in half the space."""
    return column.astype(np.int32, copy=False)


def column_of(values: list[int]) -> Ints:
    """Return values as a column; -1 for what no 64 bits hold."""
    try:
        return np.array(values, np.int64)
    except OverflowError:
        # a nonsense number in one event (a flipped byte) must not cost the others
        return np.array([value if -(1 << 63) <= value < 1 << 63 else -1 for value in values], np.int64)


def times_of(events: Sequence[AnyEvent]) -> tuple[Ints, Ints, npt.NDArray[np.bool_] | None]:
    """Return starts and ends in ns, and a mask of usable rows (None: all are).

    A float of µs is split into whole µs and the rest, which is exact below EXACT_FLOAT_US; times a thousand as it
    stands would round twice.
    """
    if not events or isinstance(events[0].ts, float):
        start_us = np.array([event.ts for event in events], np.float64)
        duration_us = np.array([event.dur for event in events], np.float64)
        good = np.isfinite(start_us) & np.isfinite(duration_us) & (duration_us >= 0)
        good &= (np.abs(start_us) < _FARTHEST_US) & (duration_us < _LONGEST_US)
        usable = None if bool(good.all()) else good
        if usable is not None:
            start_us, duration_us = np.where(good, start_us, 0.0), np.where(good, duration_us, 0.0)
        start = _nanoseconds(start_us)
        return start, start + _nanoseconds(duration_us), usable
    starts, ends, marks = [], [], []
    for event in events:
        begin, duration = Decimal(event.ts), Decimal(event.dur)
        mark = begin.is_finite() and duration.is_finite() and abs(begin) < _FARTHEST_US and 0 <= duration < _LONGEST_US
        starts.append(round(begin * 1000) if mark else 0)
        ends.append(starts[-1] + (round(duration * 1000) if mark else 0))
        marks.append(mark)
    return np.array(starts, np.int64), np.array(ends, np.int64), None if all(marks) else np.array(marks, bool)


def _nanoseconds(micro: npt.NDArray[np.float64]) -> Ints:
    whole = np.floor(micro)
    nanoseconds: Ints = whole.astype(np.int64) * 1000 + np.rint((micro - whole) * 1000).astype(np.int64)
    return nanoseconds
