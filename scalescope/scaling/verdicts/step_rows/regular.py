"""How surely some steps of several series are the longest ones every so often, and are not so by chance.

Every period and every phase of each series is tried; what tells one from chance is how unlikely it is that longest
steps lie that regularly. One of them may be no longer than others: a hiccup beside it hides it.

Of a short job's steps few are longer, and of all that is tried some would lie as regularly. Where a wide gap parts them
from all others nothing is tried: these and no others are the longer ones, and what is left to chance is where they lie,
and that they are as long as one another: hiccups are of any length.
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
#: Steps are longer beyond doubt where the shortest is so many times as far from the others' middle as any other.
_APART = 2.0
#: Nothing is told surer for steps that are nearer to one another than this share of what they are longer by.
_LEAST_APART = 0.05
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
    found += _set_apart(series)
    for _, every, phase, at in found:
        own = series[at].numbers % every == phase
        times = series[at].times
        if np.median(times[own]) - np.median(times[~own]) >= least_ms:
            return every, phase
    return None


def _set_apart(series: Sequence[StepSeries]) -> list[tuple[float, int, int, int]]:
    """Return the same, and the series, of steps that are all of a phase and longer than all others beyond doubt.

    As several series have the same ones, each such set counts once in what is tried.
    """
    sets: dict[tuple[int, ...], tuple[int, float]] = {}
    for at, one in enumerate(series):
        if apart := _apart(one):
            as_long = _as_long_by_chance(one, apart)
            if apart not in sets or as_long < sets[apart][1]:
                sets[apart] = at, as_long
    found = []
    for steps, (at, as_long) in sets.items():
        numbers = series[at].numbers
        alike: list[tuple[int, int]] = []  # the periods and phases that have as many of the steps
        for every in range(2, int(numbers[-1] - numbers[0]) // (LEAST_TIMES - 1) + 1):
            sizes = np.bincount(numbers % every, minlength=every)
            alike += [(every, phase) for phase in np.flatnonzero(sizes == len(steps)).tolist()]
        least = _Chances(len(numbers)).least(len(steps))
        chance = least + as_long + math.log(max(len(alike), 1) * len(sets))
        if chance < math.log(_CHANCE):
            own = [one for one in alike if np.array_equal(numbers[numbers % one[0] == one[1]], steps)]
            found += [(chance, *one, at) for one in own]
    return sorted(found)


def _apart(series: StepSeries) -> tuple[int, ...]:
    """Return which steps are longer than all others beyond doubt, in order; none where none are, or too few."""
    order = np.argsort(series.times, kind="stable")
    times = series.times[order]
    least, most = LEAST_TIMES, len(times) // 2
    if most < least:
        return ()
    # the one beneath them: of those that recur one may be longer than the others by more than those than all the rest
    gaps = (times[-most:] - times[-most - 1 : -1])[: most - least + 1]
    count = most - int(gaps.argmax())
    usual = float(np.median(times[:-count]))
    if times[-count] - usual < _APART * (times[-count - 1] - usual):
        return ()
    return tuple(sorted(series.numbers[order[-count:]].tolist()))


def _as_long_by_chance(series: StepSeries, steps: tuple[int, ...]) -> float:
    """Return the logarithm of the chance that longer steps are as long as one another as these are, or more so.

    As of hiccups of any length up to the longest one's: all but that one lie in so small a share of it.
    """
    usual = float(np.median(series.times[~np.isin(series.numbers, steps)]))
    longer = np.sort(series.times[np.isin(series.numbers, steps)]) - usual
    if longer[-1] <= 0:  # all steps are as long
        return 0.0
    share = max(float((longer[-1] - longer[0]) / longer[-1]), _LEAST_APART)
    return (len(longer) - 1) * math.log(share)


def _longest(series: StepSeries, bound: float) -> Iterator[tuple[float, int, int]]:
    """Return the logarithm of chance, the period and the phase of steps that are among the longest, below a bound."""
    numbers, count = series.numbers, len(series.times)
    order = np.argsort(series.times, kind="stable")
    periods = range(2, count // LEAST_TIMES + 1)
    tried = math.log(2 * (sum(periods) or 1))  # either may be missed, or none
    chances = _Chances(count)
    for every in periods:
        phases = numbers % every
        sizes = np.bincount(phases, minlength=every)
        most = int(sizes.max())
        if tried + chances.least(min(most, count // 2)) >= bound:
            continue  # so few are the longest ones by chance
        below = count - min(count, math.ceil(_HICCUPS * (count - most) + most))
        among = phases[order[below:]]
        there = np.bincount(among, minlength=every)
        likely = (sizes >= LEAST_TIMES) & (sizes < count) & (there >= sizes - (sizes >= _ONE_MISSED))
        for phase in np.flatnonzero(likely).tolist():
            size = int(sizes[phase])
            longest = (below + np.flatnonzero(among == phase)).tolist()  # one that is missed may be at none of these
            chance = tried + chances.of(size, longest)
            if chance < bound:
                yield chance, every, phase


class _Chances:
    """Logarithms of the chance that steps of so many, by length, lie where they do or above."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._factorial = [math.lgamma(one + 1) for one in range(count + 1)]

    def least(self, size: int) -> float:
        """Return the chance that so many are the longest ones."""
        return -self._choose(self._count, size)

    def of(self, size: int, places: Sequence[int]) -> float:
        """Return the chance of steps at these places, in order; the shortest may be missed among them, and out."""
        missed_one = size >= _ONE_MISSED
        chances = [0.0]
        for missed in range(2 if missed_one else 1):
            at = missed - (size - len(places))
            as_long = self._count - places[at] if 0 <= at < len(places) else self._count
            if as_long - (size - missed) > _HICCUPS * (self._count - size):
                continue
            shorter = self._count - as_long
            ways = [
                self._choose(as_long, there) + self._choose(shorter, size - there)
                for there in range(size - missed, min(size, as_long) + 1)
                if size - there <= shorter
            ]
            together = max(ways) + math.log(math.fsum(math.exp(one - max(ways)) for one in ways))
            chances.append(together - self._choose(self._count, size))
        return min(chances)

    def _choose(self, of: int, some: int) -> float:
        return self._factorial[of] - self._factorial[some] - self._factorial[of - some]
