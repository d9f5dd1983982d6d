"""Non-negative least squares for few terms, exact, for many problems at once.

With k ≤ 4 terms the solution is one of 2^k: least squares on some subset of the terms, the others 0. Each is solved
from the normal equations, and of those without a negative coefficient the best is taken.
"""

from itertools import combinations

import numpy as np

from scalescope.scaling.costs.terms import Floats

_TINY = 1e-12


def solve(gram: Floats, moment: Floats) -> Floats:
    """Return x ≥ 0 that minimises x'Gx − 2m'x; `gram` of shape (…, k, k) and `moment` of shape (…, k) broadcast."""
    k = moment.shape[-1]
    scale = np.sqrt(np.maximum(np.diagonal(gram, axis1=-2, axis2=-1), _TINY))
    gram = gram / scale[..., :, None] / scale[..., None, :]
    target = moment / scale
    shape = np.broadcast_shapes(gram.shape[:-2], target.shape[:-1])
    best = np.zeros((*shape, k))
    gain = np.zeros(shape)
    for count in range(1, k + 1):
        for chosen in combinations(range(k), count):
            at = list(chosen)
            # terms that the points cannot tell apart would make the equations singular: a grain on the diagonal
            equations = gram[..., at, :][..., :, at] + 1e-11 * np.eye(count)
            right = np.broadcast_to(target[..., at], (*shape, count))
            part = np.linalg.solve(np.broadcast_to(equations, (*shape, count, count)), right[..., None])[..., 0]
            gained = (part * right).sum(-1)
            better = (part >= 0).all(-1) & (gained > gain)
            gain = np.where(better, gained, gain)
            whole = np.zeros((*shape, k))
            whole[..., at] = part
            best = np.where(better[..., None], whole, best)
    return best / scale
