"""Student's t, two-sided 95%: how much wider an interval is that knows its spread from few values only; how many digits
an interval leaves; medians of what is known; and ranges of figures in texts."""

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import TypeVar

Number = TypeVar("Number", int, float)

NORMAL_95 = 1.96

#: What is said for sure is so in so many of all cases.
SURE = 0.95

_T95 = (  # by degrees of freedom, from 1 on
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip

_FIGURE = re.compile(r"\d+(?:\.\d+)?")

#: From so many degrees of freedom on, the series below is right to a thousandth.
_SERIES_HOLDS = 5


def student_95(degrees: int) -> float:
    """Return the quantile for so many degrees of freedom; beyond 30 the normal one, 4% below it at most."""
    return _T95[degrees - 1] if degrees <= len(_T95) else NORMAL_95


def student_over_normal(degrees: int) -> float:
    """Return by how much the quantile exceeds the normal one (Abramowitz and Stegun 26.7.5, to the second order).

    The series falls short for fewer than five degrees, of which the table tells.
    """
    z = NORMAL_95
    if degrees < _SERIES_HOLDS:
        return student_95(degrees) / z
    return 1 + (z**2 + 1) / (4 * degrees) + (5 * z**4 + 16 * z**2 + 3) / (96 * degrees**2)


def median_of_known(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def half_of_mean(values: Sequence[float]) -> float:
    """Return half of the 95% interval of a mean, in the values' unit, by what they differ by; 0 of a single one.

    Two values hardly know their spread (Student's t would be 12.7): of those it is what they differ by.
    """
    if len(values) < 2:
        return 0.0
    if len(values) == 2:
        return abs(values[0] - values[1])
    return student_95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def student_beyond(t: float, degrees: int) -> float:
    """Return how likely chance makes Student's t `t` or more, one-sided (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    angle = math.atan2(abs(t), math.sqrt(degrees))
    cos2 = math.cos(angle) ** 2
    term, total = (math.cos(angle), 0.0) if degrees % 2 else (1.0, 0.0)
    for at in range(1 + degrees % 2, degrees, 2):  # the terms of either series, each a multiple of the one before
        total += term
        term *= cos2 * at / (at + 1)
    within = 2 / math.pi * (angle + math.sin(angle) * total) if degrees % 2 else math.sin(angle) * total
    tail = max(0.0, (1 - within) / 2)
    return tail if t >= 0 else 1 - tail


def is_beyond_chance(values: Sequence[float], looked_at: int = 1) -> bool:
    """Tell whether values that differ by chance have a mean above 0 for sure, 95%, where so many means were looked at.

    Which sign a value has says nothing where nothing is the matter, so their own spread is what chance makes. A single
    value has none: nothing speaks against it.
    """
    if len(values) < 2:
        return True
    mean, spread = statistics.fmean(values), statistics.stdev(values)
    if mean <= 0 or not spread:
        return mean > 0
    return student_beyond(mean / spread * math.sqrt(len(values)), len(values) - 1) * looked_at <= 1 - SURE


def share_95(count: int, of: int) -> tuple[float, float]:
    """Return the 95% interval of the share that so many of `of` tell (Wilson's)."""
    z2 = NORMAL_95**2
    share = count / of
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = math.sqrt(z2 * (share * (1 - share) + z2 / (4 * of)) / of) / (1 + z2 / of)
    return max(0.0, middle - half), min(1.0, middle + half)


def digits_of(half: float) -> int:
    """Return how many decimals of a figure say something, given half of its interval: two digits of that."""
    digits = 0
    while digits < 4 and half < 10 ** (1 - digits) and half > 0:
        digits += 1
    return digits


def decimals(value: float, half: float | None, most: int = 2) -> int:
    """Return the decimals to show of a figure, `most` or fewer, whose interval has `half`, a share of it, either side.

    A figure without an interval shows `most`.
    """
    return most if half is None else min(most, digits_of(half * abs(value)))


def largest_of_others(values: Sequence[Number]) -> list[Number]:
    """Return for each of two values or more the largest of the others; among a thousand, at once."""
    largest, second = sorted(values)[-1:-3:-1]
    return [second if one == largest else largest for one in values]


def with_ranges(texts: Iterable[str]) -> list[str]:
    """Return texts, in their order, of which those that differ in figures alone are one: `0.44 to 0.58 of the rate`."""
    alike: dict[str, list[str]] = {}
    for text in dict.fromkeys(texts):
        alike.setdefault(_FIGURE.sub("", text), []).append(text)
    return [_as_one(same) for same in alike.values()]


def _as_one(texts: Sequence[str]) -> str:
    """Return texts that differ in figures alone as one, with the range of each figure that differs."""
    told = [sorted(set(one), key=float) for one in zip(*(_FIGURE.findall(text) for text in texts), strict=True)]
    ranges = iter(told)

    def ranged(_: re.Match[str]) -> str:
        figures = next(ranges)
        return figures[0] if len(figures) == 1 else f"{figures[0]} to {figures[-1]}"

    return _FIGURE.sub(ranged, texts[0])
