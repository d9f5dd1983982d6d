"""What a collective's time is made of: terms in the group size n and the size S, per operation.

    t = t₀ + α·steps(n)  or  t₀ + α·levels(n)      latency
          + β·moved(n)·S + γ·S                     bandwidth

`steps` are those of a ring (all_reduce 2(n−1); all_gather, reduce_scatter, all_to_all n−1; broadcast n−1), `levels`
those of a tree (2·log₂ n, log₂ n), and `moved` is the share of S that each rank sends over its link (all_reduce
2(n−1)/n; all_gather, reduce_scatter, all_to_all, gather, scatter (n−1)/n; broadcast, reduce, send_recv 1): Thakur,
Rabenseifner and Gropp 2005. γ is what a byte costs a rank in its own memory (read, reduced, written), however many
ranks there are: without it a ring of 4 would take 1.5 times as long as a ring of 2, and on real links of 64 MiB it is
1.28 times.

Which of these a set of points speaks for differs, so every combination is a *form* of its own, and the fit weighs
them.
"""

from itertools import product

import numpy as np
import numpy.typing as npt

from scalescope.records.operations import OPERATION_FACTS

Floats = npt.NDArray[np.float64]

#: Operations whose cost has a formula.
KNOWN = tuple(OPERATION_FACTS)

Form = tuple[str, ...]

_LATENCY: tuple[Form, ...] = (("constant",), ("steps",), ("levels",), ("constant", "steps"), ("constant", "levels"))
_BANDWIDTH: tuple[Form, ...] = (("moved",), ("own",), ("moved", "own"))


def steps(operation: str, n: Floats) -> Floats:
    """Return the sequential messages of a ring of n."""
    facts = OPERATION_FACTS[operation]
    return np.ones_like(n) if facts.pairwise else facts.rounds * (n - 1)


def levels(operation: str, n: Floats) -> Floats:
    """Return the sequential messages of a binary tree of n."""
    facts = OPERATION_FACTS[operation]
    return np.ones_like(n) if facts.pairwise else facts.rounds * np.log2(n)


def moved(operation: str, n: Floats) -> Floats:
    """Return the share of S that each of n ranks sends."""
    share = OPERATION_FACTS[operation].sent_share
    return np.ones_like(n) if share is None else np.array([share(float(one)) for one in n.ravel()]).reshape(n.shape)


def features(form: Form, operation: str, sizes: Floats, groups: Floats) -> Floats:
    """Return the terms of each point, of shape (points, terms): times their coefficients they add up to its time."""
    columns = {
        "constant": np.ones_like(sizes),
        "steps": steps(operation, groups),
        "levels": levels(operation, groups),
        "moved": moved(operation, groups) * sizes,
        "own": sizes,
    }
    return np.stack([columns[name] for name in form], axis=1)


def forms(operation: str, groups: Floats, sizes: Floats) -> list[Form]:
    """Return the forms that points at these group sizes and sizes can tell the terms of."""
    n = np.unique(groups)
    ones = np.ones_like(n)
    bandwidth = _BANDWIDTH if np.unique(sizes).size > 1 else ((),)
    found = []
    for late, wide in product(_LATENCY, bandwidth):
        if all(_distinct(features(part, operation, ones, n)) for part in (late, wide) if part):
            found.append((*late, *wide))
    return found


def _distinct(columns: Floats) -> bool:
    return bool(np.linalg.matrix_rank(columns) == columns.shape[1] and (columns > 0).any(axis=0).all())
