"""How far two means of the same thing lie apart by chance: the bootstrap over the largest unit there is.

What is resampled are repeats of the job, where both sides have more than one; else a window's steps. Units of one kind
differ by more than those below them let expect (two launches place memory otherwise, two windows meet other clocks), so
only the largest ones tell how far two measurements lie apart: of one run's windows, and of one run's steps, the rest is
taken from what other jobs' were seen to differ by.

- n units: their means are drawn n at a time with replacement; the draws' distance from the mean is stretched by
  √(n/(n − 1)), since a bootstrap's variance has n for a divisor, and, as the spread of few units is itself a guess, by
  Student's t for Welch's degrees of freedom over the normal quantile.
- One side alone has one unit: it is taken to spread as the other's do.
- Few units hardly know how they spread (of two, Student's t is 12.7, and two repeats a side told less than one did).
  So where both sides together have fewer than four degrees of freedom, their variance is pooled with that of windows
  of one undisturbed job (spread.py), which counts as four more: a moderated t. From four to eleven it still is where
  that interval is the narrower one. Of fewer, parts whose units spread by no more than those windows did get at most
  the bounds of a spread that is known: a repeat that agrees takes nothing away that one run a side told.
- Neither has more than one: each part, and the step, is moved by what those windows were seen to differ by, and the
  steps are resampled besides where recording does not disturb them. That interval is wide, and is meant to be.

Parts are many, and tested at once: their bounds are those of the largest deviation among all of them in each draw
(max-|t|), so that in 95 of 100 comparisons of the same thing every part's bounds hold 0, and not only each by itself.
Of fewer than four units the draws take too few values for that, and the parts count as independent (Šidák), which is
wider.

Some parts are amounts that cannot be negative and differ between windows by a factor rather than by so many ms (waits,
copies, a late host): of few units each, a symmetric interval that is 40% of the larger amount wide on either side calls
no growth real, however large, and would leave a part that grew from nothing to ten ms within noise. So these have
the bounds of log-normal amounts, joined as by Zou and Donner (2008). Of a large amount such a bound lies far away: no
part's reaches farther than the step's change and the other parts leave room for.
"""

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

import msgspec
import numpy as np
import numpy.typing as npt

from scalescope.records.statistics import NORMAL_95, student_95

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_DRAWS = 2000
_STUDENT_DRAWS = 200_000
_SEED = 20261122
#: Of fewer units the resampled means take so few values that their largest deviation says too little.
_FEW_UNITS = 4
#: What windows of other jobs were seen to spread by counts as so many degrees of freedom.
_PRIOR_DEGREES = 4
#: From so many of their own on, units tell alone how they spread.
_ENOUGH_DEGREES = 12
#: Below this share of the step a part is none: its draws would be noise of the arithmetic.
_NOTHING = 1e-9


class Sample(msgspec.Struct, frozen=True):
    """One side: a row a unit, a column a part, whose sum is the step; ms.

    `steps`: of one unit alone, its steps; `spread`: by how much each part of such a unit differs from another's, ms
    (None: only the units themselves tell).
    `amounts`: parts that vary by a factor, and `least_ms`: what any part of a unit differs from another's by at least.
    `step_spread`: the same of the step, which varies by less than its parts let expect: what one takes from the other's
    time is no change of the whole. `has_rest`: the step was measured by itself, and the last column is what the parts
    leave of it.
    """

    units: Floats
    steps: Floats | None = None
    spread: Floats | None = None
    step_spread: float = 0.0
    has_rest: bool = False
    amounts: Mask | None = None
    least_ms: float = 0.0

    @property
    def mean(self) -> Floats:
        mean: Floats = self.units.mean(axis=0)
        return mean


class Bounds(msgspec.Struct, frozen=True):
    """The change of each part and of their sum, with 95% intervals; ms."""

    parts: Floats
    low: Floats
    high: Floats
    step: float
    step_low: float
    step_high: float
    degrees: int | None
    factor: float  # of the parts' intervals over one alone


def bounds(baseline: Sample, other: Sample) -> Bounds:
    """Return OTHER's mean less the baseline's, with intervals; those of the parts hold together."""
    own = len(baseline.units) + len(other.units) - 2
    prior = _prior(baseline), _prior(other)
    if not 0 < own < _ENOUGH_DEGREES or prior[0] is None or prior[1] is None:
        return _resampled_bounds(baseline, other)
    pooled = _moderated(baseline, other, (prior[0] + prior[1]) / 2)
    if own >= _PRIOR_DEGREES:
        return _narrower(_resampled_bounds(baseline, other), pooled)
    return _moderated(baseline, other, (prior[0] + prior[1]) / 2, pooled)


def within_the_step(found: Bounds) -> Bounds:
    """Return bounds of which none reaches farther from zero than the step's change and the other parts leave room for.

    A part is the step's change less all the others, whose errors add up in squares as if they were independent. The
    last part is what the traces do not show of the step, and is counted in full to either side: where it changed, a
    window is no measure of the others. The bound next to zero stays, so that nothing is sure by this alone.
    """
    rest = float(found.parts[-1])
    lower, upper = (found.parts - found.low)[:-1], (found.high - found.parts)[:-1]

    def room(step_half: float, halves: Floats) -> Floats:
        others = np.maximum(np.square(halves).sum() - np.square(halves), 0.0)
        reached: Floats = np.sqrt(step_half**2 + others) + abs(rest)
        return reached

    most = found.parts[:-1] + rest + room(found.step_high - found.step, lower)
    least = found.parts[:-1] + rest - room(found.step - found.step_low, upper)
    low, high = found.low.copy(), found.high.copy()
    high[:-1] = np.where(found.parts[:-1] > 0, np.minimum(high[:-1], most), high[:-1])
    low[:-1] = np.where(found.parts[:-1] < 0, np.maximum(low[:-1], least), low[:-1])
    return msgspec.structs.replace(found, low=low, high=high)


def _narrower(one: Bounds, other: Bounds) -> Bounds:
    """Return bounds of which each part's, and the step's, are the narrower ones of two."""
    parts = one.high - one.low <= other.high - other.low
    step = one if one.step_high - one.step_low <= other.step_high - other.step_low else other
    low, high = np.where(parts, one.low, other.low), np.where(parts, one.high, other.high)
    return Bounds(parts=one.parts, low=low, high=high, step=step.step, step_low=step.step_low,
                  step_high=step.step_high, degrees=step.degrees, factor=step.factor)  # fmt: skip


def _resampled_bounds(baseline: Sample, other: Sample) -> Bounds:
    dice = np.random.default_rng(_SEED)
    # whichever is asked about, the longer side is drawn first: what two sides differ by is one thing in both directions
    second, first = sorted((baseline, other), key=lambda one: (float(one.mean.sum()), one.mean.tolist()))
    drawn = {id(first): _draws(first, second, dice), id(second): _draws(second, first, dice)}
    there, here = drawn[id(other)], drawn[id(baseline)]
    change = other.mean - baseline.mean
    off = there.parts - here.parts - change
    step_off = there.step - here.step - change.sum()
    degrees = _degrees(baseline.units, other.units)
    stretch = student_95(degrees) / NORMAL_95 if degrees is not None else 1.0
    step_error = float(step_off.std())
    step_half = stretch * max(_quantile(np.abs(step_off)), NORMAL_95 * step_error)
    errors = off.std(axis=0)
    level = float(np.abs(baseline.mean).sum() + np.abs(other.mean).sum())
    known = errors > _NOTHING * level
    alone = np.where(known, errors, 1.0)
    largest = (np.abs(off) / alone)[:, known].max(axis=1) if known.any() else np.zeros(1)
    quantile = max(_quantile(largest), NORMAL_95)
    if max(len(baseline.units), len(other.units)) < _FEW_UNITS:
        quantile = max(quantile, _of_independent(int(known.sum())))
    stretched = _stretched(quantile, degrees, dice)
    half = stretched * np.where(known, errors, 0.0)
    low, high = change - half, change + half
    if degrees is None and baseline.spread is not None and other.spread is not None:
        low, high = _with_amounts(baseline, other, (baseline.spread, other.spread), stretched, (low, high))
    return Bounds(
        parts=change,
        low=low,
        high=high,
        step=float(change.sum()),
        step_low=float(change.sum()) - step_half,
        step_high=float(change.sum()) + step_half,
        degrees=degrees,
        factor=stretched / (NORMAL_95 * stretch),
    )


def _prior(side: Sample) -> Floats | None:
    """Return the variance that each part is known to have, and last the step, ms²; None where nothing is known."""
    if side.spread is None:
        return None
    parts = side.spread**2
    if side.has_rest:
        parts[-1] = side.step_spread**2 + parts[:-1].sum()
    return np.append(parts, side.step_spread**2)


def _moderated(baseline: Sample, other: Sample, prior: Floats, pooled: Bounds | None = None) -> Bounds:
    """Return the bounds of few units, whose variance is pooled with what it is known to be; `prior`: see `_prior`.

    `pooled`: those bounds, of which parts whose units spread by no more than one alone is taken to get the narrower
    ones of units that are known to spread so: more of them that agree tell no less than one did. How units spread says
    nothing of how far two means lie apart.
    """
    counts = [len(one.units) for one in (baseline, other)]
    own = sum(counts) - 2
    squares = np.zeros(len(prior))
    for one in (baseline, other):
        rows = np.column_stack([one.units, one.units.sum(axis=1)])
        squares += ((rows - rows.mean(axis=0)) ** 2).sum(axis=0)
    degrees = _PRIOR_DEGREES + own
    variance = prior if pooled is not None else (_PRIOR_DEGREES * prior + squares) / degrees
    errors = np.sqrt(variance * sum(1 / count for count in counts))
    change = other.mean - baseline.mean
    level = float(np.abs(baseline.mean).sum() + np.abs(other.mean).sum())
    known = errors[:-1] > _NOTHING * level
    normal = _of_independent(int(known.sum()))
    quantile = normal if pooled is not None else _stretched_afresh(normal, degrees)
    half = quantile * np.where(known, errors[:-1], 0.0)
    of_one = NORMAL_95 if pooled is not None else student_95(degrees)
    step, step_half = float(change.sum()), of_one * float(errors[-1])
    sides = [_errors(one, known=pooled is not None) for one in (baseline, other)]
    low, high = _with_amounts(baseline, other, (sides[0], sides[1]), quantile, (change - half, change + half))
    found = Bounds(parts=change, low=low, high=high, step=step, step_low=step - step_half,
                   step_high=step + step_half, degrees=degrees, factor=quantile / of_one)  # fmt: skip
    return found if pooled is None else _of_those_that_agree(found, pooled, squares <= own * prior)


def _of_those_that_agree(known: Bounds, pooled: Bounds, agree: Mask) -> Bounds:
    """Return pooled bounds, with the narrower ones of a known spread of those parts, and the step, that agree with it;
    `agree`: of each part, and last of the step.
    """
    narrower = _narrower(known, pooled)
    step = narrower if agree[-1] else pooled
    low, high = np.where(agree[:-1], narrower.low, pooled.low), np.where(agree[:-1], narrower.high, pooled.high)
    return Bounds(parts=pooled.parts, low=low, high=high, step=step.step, step_low=step.step_low,
                  step_high=step.step_high, degrees=pooled.degrees, factor=pooled.factor)  # fmt: skip


def _errors(side: Sample, *, known: bool = False) -> Floats:
    """Return the standard error of one side's parts, pooled with what they are known to spread by, ms.

    `known`: of that alone.
    """
    assert side.spread is not None
    squares = ((side.units - side.mean) ** 2).sum(axis=0)
    count = len(side.units)
    if known:
        return side.spread / math.sqrt(count)
    errors: Floats = np.sqrt((_PRIOR_DEGREES * side.spread**2 + squares) / (_PRIOR_DEGREES + count - 1) / count)
    return errors


def _with_amounts(
    baseline: Sample, other: Sample, errors: tuple[Floats, Floats], quantile: float, bounds: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Return the parts' bounds, those of amounts by factors; `errors`: each side's standard deviations, ms."""
    if baseline.amounts is None:
        return bounds
    before, after = np.abs(baseline.mean), np.abs(other.mean)
    shares = [np.divide(error, mean, out=np.zeros_like(mean), where=mean > 0)
              for error, mean in zip(errors, (before, after), strict=True)]  # fmt: skip
    low, high = of_amounts(before, after, shares[0], shares[1], quantile)
    floor = quantile * math.hypot(baseline.least_ms, other.least_ms)
    change = after - before
    low, high = change - np.hypot(change - low, floor), change + np.hypot(high - change, floor)
    return np.where(baseline.amounts, low, bounds[0]), np.where(baseline.amounts, high, bounds[1])


def of_amounts(
    before: Floats, after: Floats, spread_before: Floats, spread_after: Floats, quantile: float
) -> tuple[Floats, Floats]:
    """Return the bounds of changes between amounts that cannot be negative and vary by a factor.

    The spreads are their standard deviations as shares. Each has the bounds of a log-normal amount, joined as by Zou
    and Donner (2008): a symmetric interval of so wide a spread would call no growth real, however large.
    """
    times = [np.exp(quantile * np.sqrt(np.log1p(spread**2))) for spread in (spread_before, spread_after)]
    change = after - before
    low = change - np.hypot(after * (1 - 1 / times[1]), before * (times[0] - 1))
    high = change + np.hypot(after * (times[1] - 1), before * (1 - 1 / times[0]))
    return low, high


class _Draws(msgspec.Struct, frozen=True):
    """Means as chance might have had them: (draws, parts), and of the step."""

    parts: Floats
    step: Floats


def _draws(side: Sample, beside: Sample, dice: np.random.Generator) -> _Draws:
    mean, count = side.mean, len(side.units)
    if count > 1:
        parts = _resampled(side.units, mean, count, dice)
        return _Draws(parts, parts.sum(axis=1))
    if len(beside.units) > 1:
        parts = _resampled(beside.units, mean, 1, dice)
        return _Draws(parts, parts.sum(axis=1))
    parts = np.tile(mean, (_DRAWS, 1))
    if side.steps is not None and len(side.steps) > 1:
        parts = _resampled(side.steps, mean, len(side.steps), dice)
    step = parts.sum(axis=1) + dice.standard_normal(_DRAWS) * side.step_spread
    if side.spread is not None:
        parts = parts + dice.standard_normal(parts.shape) * side.spread
    if side.has_rest:
        parts[:, -1] = step - parts[:, :-1].sum(axis=1)
    return _Draws(parts, step)


def _resampled(rows: Floats, around: Floats, at_once: int, dice: np.random.Generator) -> Floats:
    """Return means of so many of the rows at once, moved to lie around another mean."""
    count = len(rows)
    chosen = dice.integers(count, size=(_DRAWS, at_once))
    off = rows[chosen].mean(axis=1) - rows.mean(axis=0)
    drawn: Floats = around + off * np.sqrt(count / (count - 1))
    return drawn


def _degrees(baseline: Floats, other: Floats) -> int | None:
    """Return Welch's degrees of freedom of the steps' difference; None where each side is one unit."""
    sides = [rows.sum(axis=1) for rows in (baseline, other)]
    counts = [len(one) for one in sides]
    if max(counts) < 2:
        return None
    if min(counts) < 2:
        return max(counts) - 1
    terms = [float(one.var(ddof=1)) / len(one) for one in sides]
    below = sum(term**2 / (count - 1) for term, count in zip(terms, counts, strict=True))
    found = sum(terms) ** 2 / below if below else sum(counts) - 2
    return max(1, int(found))


def _of_independent(parts: int) -> float:
    """Return the normal quantile within which so many independent parts all lie in 95 of 100 cases (Šidák)."""
    return NormalDist().inv_cdf((1 + 0.95 ** (1 / max(1, parts))) / 2)


def _stretched(quantile: float, degrees: int | None, dice: np.random.Generator) -> float:
    """Return Student's quantile where a normal quantile is exceeded as rarely: farther out it lies still farther."""
    if degrees is None:
        return quantile
    rarely = 2 * (1 - NormalDist().cdf(quantile))
    return float(np.quantile(np.abs(dice.standard_t(degrees, _STUDENT_DRAWS)), 1 - rarely))


@cache
def _stretched_afresh(quantile: float, degrees: int) -> float:
    return _stretched(quantile, degrees, np.random.default_rng(_SEED))


def _quantile(values: Sequence[float] | Floats) -> float:
    return float(np.quantile(values, 0.95))
