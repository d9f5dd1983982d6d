"""Fits what one collective takes: every form the points can tell, each cut into segments, weighed by AICc.

The error that is made small is relative: a µs counts as much at 20 µs as a ms at 20 ms. A point counts by its own
precision and by what two launches differ by. No form is chosen for good: predictions draw on each by its Akaike weight
(Burnham and Anderson 2002), so that where two forms fit alike and part at other group sizes, the interval says so.

Intervals are bootstrapped. Of three launches and more, launches are drawn with replacement; of fewer, the
residuals are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalescope.records.statistics import student_over_normal
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.costs.nonnegative import solve
from scalescope.scaling.costs.points import Point
from scalescope.scaling.costs.segments import Cut, Indices, best_cut, segment_of
from scalescope.scaling.costs.terms import Floats, Form, features, forms

#: One standard deviation of what two launches of one sweep differ by, beyond their own intervals
#: (benchmarks/results/2026-11-22_4xH200_B, "Beside nccl-tests": from launch to launch).
LAUNCH_SPREAD = 0.01

_DRAWS = 400
_LEAST_DRAWS = 20  # a form
_NOTHING = 1e-9
_WORTH_DRAWING = 0.01  # a form of a smaller weight
_LAUNCHES = 3  # fewer cannot be drawn with replacement to any effect
_SEED = 1337


@dataclass(frozen=True)
class Branch:
    """One form, fitted."""

    form: Form
    weight: float
    cut: Cut
    coefficients: Floats  # (segments, terms): µs, µs a byte
    draws: Floats  # (draws, segments, terms)
    noise: Floats  # (draws, segments): what one more measurement would differ by, as a share


@dataclass(frozen=True)
class Fit:
    """What one operation of one dtype takes."""

    operation: str
    dtype: str
    points: tuple[Point, ...]
    branches: tuple[Branch, ...]  # the likeliest first

    @property
    def groups(self) -> list[int]:
        return sorted({point.group_size for point in self.points})

    @property
    def sizes(self) -> tuple[int, int]:
        """The smallest and the largest size measured, bytes."""
        return min(point.bytes for point in self.points), max(point.bytes for point in self.points)

    def time_us(self, size: float, group_size: int) -> Interval:
        """Return what a collective of `size` bytes takes in µs, with the interval of a new measurement."""
        value, draws = 0.0, []
        for branch in self.branches:
            x = features(branch.form, self.operation, np.array([float(size)]), np.array([float(group_size)]))[0]
            at = int(segment_of(np.array([float(size)]), branch.cut.edges)[0])
            value += branch.weight * float(branch.coefficients[at] @ x)
            draws.append(branch.draws[:, at] @ x * (1 + branch.noise[:, at]))
        low, high = np.quantile(np.concatenate(draws), (0.025, 0.975))
        return Interval(value, min(max(float(low), 0.0), value), max(float(high), value))


def fit(operation: str, dtype: str, points: Sequence[Point]) -> Fit:
    """Fit the points of one operation and dtype. Raises ValueError without any point."""
    if not points:
        raise ValueError(f"no point of {operation} {dtype}")
    sizes = np.array([float(point.bytes) for point in points])
    groups = np.array([float(point.group_size) for point in points])
    times = np.array([point.time_us for point in points])
    expected = np.sqrt(np.array([point.error for point in points]) ** 2 + LAUNCH_SPREAD**2)
    candidates: list[tuple[Form, Cut, Floats]] = []
    for form in forms(operation, groups, sizes):
        terms = features(form, operation, sizes, groups) / times[:, None]
        candidates.append((form, best_cut(terms, expected**-2, sizes), terms))
    least = min(cut.aicc for _, cut, _ in candidates)
    raw = [math.exp((least - cut.aicc) / 2) if math.isfinite(cut.aicc) else 1.0 for _, cut, _ in candidates]
    kept = [(each, weight) for each, weight in zip(candidates, raw, strict=True) if weight >= _WORTH_DRAWING * sum(raw)]
    kept.sort(key=lambda item: -item[1])
    total = sum(weight for _, weight in kept)
    generator = np.random.default_rng(_SEED)
    launches = np.array([point.launch for point in points])
    branches = [
        _branch(form, weight / total, cut, terms, expected, of_size, launches, generator)
        for (form, cut, terms), weight in kept
        for of_size in [segment_of(sizes, cut.edges)]
    ]
    return Fit(operation, dtype, tuple(points), tuple(branches))


def _branch(
    form: Form,
    weight: float,
    cut: Cut,
    terms: Floats,
    expected: Floats,
    segment: Indices,
    launches: Indices,
    generator: "np.random.Generator",
) -> Branch:
    """Fit a form's segments, and again on its share of the draws."""
    segments, k, count = len(cut.edges) + 1, terms.shape[1], max(_LEAST_DRAWS, round(_DRAWS * weight))
    coefficients, draws = np.zeros((segments, k)), np.zeros((count, segments, k))
    noise = np.zeros((count, segments))
    names, launch = np.unique(launches, return_inverse=True)
    often = generator.multinomial(names.size, np.full(names.size, 1 / names.size), count).astype(float)
    for at in range(segments):
        here = segment == at
        x, y = terms[here] / expected[here, None], 1 / expected[here]
        coefficients[at] = solve(x.T @ x, x.T @ y)
        fitted = x @ coefficients[at]
        residuals = _honest(y - fitted, k, generator)
        if names.size >= _LAUNCHES:
            drawn = often[:, launch[here]]
            gram, moment = np.einsum("dp,pi,pj->dij", drawn, x, x), np.einsum("dp,pi,p->di", drawn, x, y)
        else:
            gram, moment = x.T @ x, (fitted + generator.choice(residuals, (count, residuals.size))) @ x
        draws[:, at] = solve(gram, moment)
        noise[:, at] = generator.choice(residuals * expected[here], count)
    return Branch(form, weight, cut, coefficients, draws, noise)


def _honest(residuals: Floats, terms: int, generator: "np.random.Generator") -> Floats:
    """Return residuals (in expected standard deviations) as wide as the errors that they stand for.

    A fit is nearer to its own points than to new ones, by its degrees of freedom, and few points know their own spread
    badly (Student); and no fit is better than the measurements are: as many points as terms are met exactly, and say
    nothing then.
    """
    freedom = max(2, residuals.size - terms)
    residuals = (residuals - residuals.mean()) * math.sqrt(residuals.size / freedom) * student_over_normal(freedom)
    spread = float(np.sqrt((residuals**2).mean()))
    if spread < _NOTHING:
        return generator.standard_normal(residuals.size)
    return residuals * max(1.0, 1 / spread)
