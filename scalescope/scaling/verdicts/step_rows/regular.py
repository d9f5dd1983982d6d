"""How surely some steps of several series are the longest ones every so often, and are not so by chance.

Every period and every phase of each series is tried; what tells one from chance is how unlikely it is that longest
steps lie that regularly. One of them may be no longer than others: a hiccup beside it hides it.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: A period is seen at least so often; and from so many times on one of them may be missed.
LEAST_TIMES, _ONE_MISSED = 3, 5
#: So unlikely is it that as many steps are as long, as regularly, by chance, of all periods and phases tried.
_CHANCE = 1e-3
#: Of the other steps no more are as long: a machine has hiccups.
_HICCUPS = 0.1
#: On either side of a step those beside it.
_BESIDE = 6


class StepSeries(NamedTuple):
    """One time of each step, ms, beside its neighbours'; and the steps' numbers, in order."""

    numbers: NDArray[np.int64]
    times: NDArray[np.float64]


def beside_neighbours(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by how much each step, the first axis, is longer than the median of those around it in the stretch.

    A machine's speed drifts, and what is as slow around a step is none of its own. At an end those next to it count, so
    that each step has as many: of an even number, every second one is as long.
    """
    count = len(times)
    if count < 2:
        return np.zeros_like(times)
    width = min(2 * _BESIDE + 1, count)
    at = np.arange(count)
    start = np.clip(at - _BESIDE, 0, count - width)
    around = start[:, None] + np.arange(width - 1)
    around += around >= at[:, None]  # without itself
    usual: NDArray[np.float64] = np.median(times[around], axis=1)
    return times - usual


def regular(series: Sequence[StepSeries], least_ms: float) -> tuple[int, int] | None:
    """Return the period and the phase whose steps are the longest most surely in any series; None where by chance.

    Those count that are longer than a series' others by so much, in the median.
    """
    bound = math.log(_CHANCE / max(len(series), 1))
    found = sorted((chance, every, phase, at) for at, one in enumerate(series)
                   for chance, every, phase in _longest(one, bound))  # fmt: skip
    for _, every, phase, at in found:
        own = series[at].numbers % every == phase
        times = series[at].times
        if np.median(times[own]) - np.median(times[~own]) >= least_ms:
            return every, phase
    return None


def _longest(series: StepSeries, bound: float) -> Iterator[tuple[float, int, int]]:
    """Return the logarithm of chance, the period and the phase of steps that are among the longest, below a bound."""
    numbers, count = series.numbers, len(series.times)
    order = np.argsort(series.times, kind="stable")
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    periods = range(2, count // LEAST_TIMES + 1)
    tried = math.log(2 * (sum(periods) or 1))  # either may be missed, or none
    for every in periods:
        phases = numbers % every
        sizes = np.bincount(phases, minlength=every)
        most = int(sizes.max())
        among = order[count - min(count, math.ceil(_HICCUPS * (count - most) + most)) :]
        there = np.bincount(phases[among], minlength=every)
        likely = (sizes >= LEAST_TIMES) & (sizes < count) & (there >= sizes - (sizes >= _ONE_MISSED))
        for phase in np.flatnonzero(likely).tolist():
            chance = tried + _chance(np.sort(place[phases == phase]), count)
            if chance < bound:
                yield chance, every, phase


def _chance(places: NDArray[np.int64], count: int) -> float:
    """Return the logarithm of the chance that steps at these places, of all by length, lie there or above."""
    size, chances = len(places), [0.0]
    for missed in range(2 if size >= _ONE_MISSED else 1):
        as_long = count - int(places[missed])  # those of the phase but the missed one, and others
        if as_long - (size - missed) > _HICCUPS * (count - size):
            continue
        shorter = count - as_long
        ways = [
            _log_choose(as_long, there) + _log_choose(shorter, size - there)
            for there in range(size - missed, min(size, as_long) + 1)
            if size - there <= shorter
        ]
        together = max(ways) + math.log(math.fsum(math.exp(one - max(ways)) for one in ways))
        chances.append(together - _log_choose(count, size))
    return min(chances)


def _log_choose(of: int, some: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)
