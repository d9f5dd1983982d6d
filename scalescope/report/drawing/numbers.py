"""Figures as text: one way to write a duration, a share, a size and a rate, everywhere."""

import math
import re
from collections.abc import Sequence

from scalescope.records.statistics import decimals, digits_of

#: What is less reads as 0.00 ms: no change to speak of.
READS_AS_ZERO_MS = 0.005
#: Where one step may be longer or shorter than another by more than this share, that they are alike is not known.
WIDE = 0.1

_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def figure(value: float, digits: int) -> str:
    """Return a number with thousands separators and a fixed count of decimals; never `-0.00`."""
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def milliseconds(value: float, half_ms: float | None = None) -> str:
    """Return e.g. `3.8 ms`, `0.42 ms` or `1,204 ms`: about three significant digits, and none below half its interval's
    second one, where that is told.
    """
    digits = _digits(value) if half_ms is None else min(_digits(value), digits_of(half_ms))
    return f"{figure(value, digits)} ms"


def signed(change: float, low: float, high: float, unit: str = " ms") -> str:
    """Return a change with its sign, and as many digits as its interval supports."""
    digits = digits_of((high - low) / 2)
    told = figure(abs(change), digits)
    sign = "±" if told == figure(0.0, digits) else "+" if change > 0 else "−"
    return f"{sign}{told}{unit}"


def about(ms: float) -> str:
    """Return e.g. `76 ms` or `7.6 ms`: two significant digits, of what is known within a half or so."""
    digits = max(0, 1 - math.floor(math.log10(abs(ms)))) if ms else 0
    return f"{figure(float(f'{ms:.2g}'), min(2, digits))} ms"


def span(seconds: float) -> str:
    """Return a stretch of time, as `3.0 s`, `2.5 min` or `1.0 h`."""
    for limit, unit, length in ((1.0, "ms", 1e-3), (120.0, "s", 1.0), (6000.0, "min", 60.0)):
        if seconds < limit:
            return f"{figure(seconds / length, 1)} {unit}"
    return f"{figure(seconds / 3600, 1)} h"


def microseconds(value: float, half: float | None = None) -> str:
    """Return e.g. `8.6 µs`; no digits below its interval, `half` of which is told as a share of it."""
    return f"{figure(value, decimals(value, half, _digits(value)))} µs"


def rate(value: float, half: float | None = None) -> str:
    """Return e.g. `1,932,316`, `356.5`, `450` or `4.21`; no digits below its interval, `half` of which is told as a
    share of it.
    """
    most = 0 if abs(value) >= 1000 or float(value).is_integer() else 1 if abs(value) >= 10 else 2
    return figure(value, decimals(value, half, most))


def percent(share: float, digits: int = 1) -> str:
    """Return a share (1.0 = all) as e.g. `94.3%`."""
    return f"{figure(100 * share, digits)}%"


def factor(value: float) -> str:
    """Return e.g. `3.77×`."""
    return f"{figure(value, 2)}×"


def size(count: int) -> str:
    """Return bytes in binary units, exact where they are: `64 MiB`, `1.5 MiB`, `8 B`."""
    value = float(count)
    for unit in _BINARY_UNITS:
        if value < 1024 or unit == _BINARY_UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value == int(value) else f"{value:.{1 if value >= 10 else 2}f} {unit}"


def listing(items: list[str]) -> str:
    """Return `a`, `a and b` or `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


#: More ranks are not named one by one.
_MOST_RANKS = 8


def quoted(name: str) -> str:
    """Return a run's name as a sentence has it, or those of several: any word may be one, such as *both*."""
    return listing([f"“{one}”" for one in name.split(", ")])


def rank_names(ranks: Sequence[int]) -> str:
    """Return `rank 1`, `ranks 1 and 3`, or the first of many and how many more there are."""
    if len(ranks) <= _MOST_RANKS:
        return f"rank{'s' if len(ranks) > 1 else ''} {listing([str(rank) for rank in ranks])}"
    return f"ranks {', '.join(map(str, ranks[:_MOST_RANKS]))} and {len(ranks) - _MOST_RANKS} more"


def rank_list(ranks: Sequence[int]) -> str:
    """Return `rank 1`, `ranks 0 and 2` or `ranks 0 to 7 and 12`; "" for none."""
    return f"rank{'s' * (len(ranks) > 1)} {listing(_stretches(ranks))}" if ranks else ""


def numbers_named(numbers: Sequence[int]) -> str:
    """Return numbers in a sentence, such as steps': `22 and 23` or `22 to 28`."""
    return listing(_stretches(numbers))


def rank_numbers(ranks: Sequence[int]) -> str:
    """Return the ranks' numbers alone, as a cell of a table has them: `0, 2` or `0 to 7, 12`."""
    return ", ".join(_stretches(ranks))


#: So many ranks in a row, or more, are told by the first and the last of them.
_IN_A_ROW = 3


def _stretches(ranks: Sequence[int]) -> list[str]:
    rows: list[list[int]] = []
    for rank in ranks:
        if rows and rank == rows[-1][-1] + 1:
            rows[-1].append(rank)
        else:
            rows.append([rank])
    return [text for row in rows for text in ([f"{row[0]} to {row[-1]}"] if len(row) >= _IN_A_ROW else map(str, row))]


def ordinal(number: int) -> str:
    """Return `1st`, `2nd`, `13th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


_NAME_OF_CODE = re.compile(r"\w*(::|_|\.\w)")


def capitalized(text: str) -> str:
    """Return a text with its first letter large; the rest as it is. A name of code is no word: `aten::sort` stays."""
    return text if _NAME_OF_CODE.match(text) else text[:1].upper() + text[1:]


def _digits(value: float) -> int:
    magnitude = abs(value)
    return 0 if magnitude >= 1000 else 1 if magnitude >= 1 else 2
