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

from scaling.costs.interval import Interval
from scaling.costs.nonnegative import solve
from scaling.costs.points import Point
from scaling.costs.segments import Cut, Places, best_cut, segment_of
from scaling.costs.terms import Floats, Form, features, forms

#: One standard deviation of what two launches of one sweep differ by, beyond their own intervals (docs/benchmarks.md:
#: sweeps beside nccl-tests, from 2 MiB up).
LAUNCH_SPREAD = 0.01

_DRAWS = 400
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


@dataclass(frozen=True)
class Fit:
    """What one operation of one dtype takes."""

    operation: str
    dtype: str
    points: tuple[Point, ...]
    branches: tuple[Branch, ...]  # the likeliest first
    residuals: Floats  # of the likeliest form, in standard deviations of what was to be expected
    noise: Floats  # (draws): what one more measurement would differ by, as a share

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
            draws.append(branch.draws[:, at] @ x)
        spread = np.concatenate(draws)
        spread = spread * (1 + np.resize(self.noise, spread.size))
        low, high = np.quantile(spread, (0.025, 0.975))
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
    branches = []
    residuals = np.zeros(0)
    for (form, cut, terms), weight in kept:
        count = max(20, round(_DRAWS * weight / total))
        branch, own = _branch(form, weight / total, cut, terms, expected, sizes, launches, count, generator)
        branches.append(branch)
        residuals = residuals if residuals.size else own
    noise = generator.choice(residuals, sum(len(branch.draws) for branch in branches)) * LAUNCH_SPREAD
    return Fit(operation, dtype, tuple(points), tuple(branches), residuals, noise)


def _branch(
    form: Form,
    weight: float,
    cut: Cut,
    terms: Floats,
    expected: Floats,
    sizes: Floats,
    launches: Places,
    count: int,
    generator: np.random.Generator,
) -> tuple[Branch, Floats]:
    """Fit a form's segments, and again on `count` draws; returns the residuals in standard deviations, too."""
    segments = len(cut.edges) + 1
    k = terms.shape[1]
    of = segment_of(sizes, cut.edges)
    coefficients, draws = np.zeros((segments, k)), np.zeros((count, segments, k))
    residuals = np.zeros(sizes.size)
    for segment in range(segments):
        here = of == segment
        x = terms[here] / expected[here, None]
        coefficients[segment] = solve(x.T @ x, x.T @ (1 / expected[here]))
        residuals[here] = (1 - terms[here] @ coefficients[segment]) / expected[here]
    freedom = max(1, sizes.size - segments * k - (segments - 1))
    residuals = residuals * math.sqrt(sizes.size / freedom)
    residuals = residuals - residuals.mean()
    # no better than the measurements: two points can be met exactly, and say nothing then
    if (spread := float(np.sqrt((residuals**2).mean()))) < 1:
        residuals = generator.standard_normal(residuals.size) if spread < 1e-9 else residuals / spread
    names, launch = np.unique(launches, return_inverse=True)
    drawn = generator.multinomial(names.size, np.full(names.size, 1 / names.size), count).astype(float)
    for segment in range(segments):
        here = of == segment
        x = terms[here] / expected[here, None]
        if names.size >= _LAUNCHES:
            often = drawn[:, launch[here]]
            gram = np.einsum("dp,pi,pj->dij", often, x, x)
            moment = np.einsum("dp,pi,p->di", often, x, 1 / expected[here])
        else:
            gram = x.T @ x
            fitted = terms[here] @ coefficients[segment]
            moment = (fitted / expected[here] + generator.choice(residuals, (count, int(here.sum())))) @ x
        draws[:, segment] = solve(gram, moment)
    return Branch(form, weight, cut, coefficients, draws), residuals
