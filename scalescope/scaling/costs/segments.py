"""Where a curve is cut: the sizes at which a library changes its protocol or its channels, found from the times.

For every run of neighbouring sizes the best non-negative fit and its error are known at once, from prefix sums of the
normal equations; dynamic programming then finds the likeliest cuts for each number of segments, and AICc says how many
are worth their coefficients (Hurvich and Tsai 1989). Each segment has a scatter of its own: at a few bytes points lie
about by a fifth, since the host's calls are what is timed there, and that must not hide what they say at many.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scalescope.scaling.costs.nonnegative import solve
from scalescope.scaling.costs.terms import Floats

Indices = npt.NDArray[np.intp]

_MOST = 8
_LEAST_SIZES = 3  # a segment


@dataclass(frozen=True)
class Cut:
    """A curve cut into segments: segment i holds the sizes below `edges[i]`, the last one the rest."""

    edges: tuple[float, ...]
    aicc: float


def best_cut(terms: Floats, weights: Floats, sizes: Floats) -> Cut:
    """Return the segments of points with these terms (as shares of the measured time), weights and sizes."""
    distinct, at = np.unique(sizes, return_inverse=True)
    k, m, count = terms.shape[1], distinct.size, sizes.size
    gram, moment, total = np.zeros((m + 1, k, k)), np.zeros((m + 1, k)), np.zeros(m + 1)
    np.add.at(gram, at + 1, weights[:, None, None] * terms[:, :, None] * terms[:, None, :])
    np.add.at(moment, at + 1, weights[:, None] * terms)
    np.add.at(total, at + 1, weights)
    counts = np.cumsum(np.concatenate(([0], np.bincount(at))))
    least = min(_LEAST_SIZES, m)
    first, last = np.triu_indices(m, least - 1)
    gram, moment, total = _between(gram, first, last), _between(moment, first, last), _between(total, first, last)
    found = solve(gram, moment)
    errors = total - 2 * (found * moment).sum(-1) + (found[:, :, None] * gram * found[:, None, :]).sum((-1, -2))
    cost = np.full((m, m), math.inf)
    # minus twice the log-likelihood; a fit within the measurements' own precision is as good as a fit can be
    members = counts[last + 1] - counts[first]
    cost[first, last] = members * np.log(np.maximum(errors / members, 1.0))
    best: Cut | None = None
    for unlikely, cuts in _partitions(cost, m // least):
        parameters = (len(cuts) + 1) * (k + 1) + len(cuts)
        if count - parameters - 1 <= 0:
            break
        aicc = unlikely + 2 * parameters * count / (count - parameters - 1)
        if best is None or aicc < best.aicc:
            best = Cut(tuple(math.sqrt(distinct[cut - 1] * distinct[cut]) for cut in cuts), aicc)
    return best or Cut((), math.inf)


def segment_of(sizes: Floats, edges: tuple[float, ...]) -> Indices:
    """Return the index of the segment that each size lies in."""
    return np.searchsorted(np.array(edges), sizes, side="right")


def _between(sums: Floats, first: Indices, last: Indices) -> Floats:
    prefix = np.cumsum(sums, axis=0)
    between: Floats = prefix[last + 1] - prefix[first]
    return between


def _partitions(cost: Floats, most: int) -> list[tuple[float, tuple[int, ...]]]:
    """Return for 1, 2, … segments the least cost, and where the later segments begin."""
    m = cost.shape[0]
    reach = cost[0].copy()
    begins: list[tuple[int, ...]] = [()] * m
    found = [(float(reach[m - 1]), begins[m - 1])]
    for _ in range(1, min(_MOST, most)):
        through = reach[:-1, None] + cost[1:, :]  # [i, j]: segments up to size i, and one from i + 1 to j
        from_ = through.argmin(axis=0)
        begins = [(*begins[i], int(i) + 1) for i in from_.tolist()]
        reach = through.min(axis=0)
        if not math.isfinite(reach[m - 1]):
            break
        found.append((float(reach[m - 1]), begins[m - 1]))
    return found
