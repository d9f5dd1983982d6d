"""Where one rank runs other kernels for the same operators: a layer in another precision, or of another layout.

Its product is another kernel, and so are the casts, layouts and biases around it, of which there may be more or fewer.
Launch by launch they have nothing in common: all of them together stand in for all that the others run there. Unlike
launches are of one place where hardly anything in common lies between them, and are the same operators' where both
sides multiply, by about as many launches.
"""

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: No more launches in common lie between two that are of one place.
BETWEEN = 3
#: One side has no more than so many times the launches of the other, and these besides: casts to and fro.
_TIMES, _BESIDES = 2, 2
#: What is a layer's is no longer than this on either side: loops that go round more often are.
_LONGEST = 40


class UnlikeStretch(msgspec.Struct, frozen=True):
    """Launches of a rank's step that stand in for these places of the reference's, all of them together."""

    rows: list[int]
    places: list[int]

    @property
    def stand_in(self) -> list[int]:
        """A place for each row, in order."""
        last = len(self.places) - 1
        return [self.places[min(at, last)] for at in range(len(self.rows))]


def unlike_stretches(own: Sequence[str], reference: Sequence[str], place: Ints) -> tuple[UnlikeStretch, ...]:
    """Return where a rank runs other kernels than the reference for the same operators."""
    found: list[UnlikeStretch] = []
    rows: list[int] = []
    places: list[int] = []
    since = 0  # launches in common since the last that is not
    common = [-1, *np.flatnonzero(place >= 0).tolist(), len(own)]
    for before, after in pairwise(common):
        begin = int(place[before]) + 1 if before >= 0 else 0
        end = int(place[after]) if after < len(own) else len(reference)
        since += 1
        if after - before == 1 and begin == end:
            continue
        if since > BETWEEN:
            found += _same_operators(own, reference, UnlikeStretch(rows, places))
            rows, places = [], []
        rows, places, since = [*rows, *range(before + 1, after)], [*places, *range(begin, end)], 0
    return (*found, *_same_operators(own, reference, UnlikeStretch(rows, places)))


def _same_operators(own: Sequence[str], reference: Sequence[str], one: UnlikeStretch) -> list[UnlikeStretch]:
    """Return a stretch where both of its sides are of the same operators; nothing else."""
    fewer, more = sorted((len(one.rows), len(one.places)))
    if more > min(_LONGEST, _TIMES * fewer + _BESIDES):
        return []
    sides = ([own[row] for row in one.rows], [reference[place] for place in one.places])
    if any(name.startswith("collective ") for side in sides for name in side):
        return []
    multiplied = [sum(kind_of(name) in MULTIPLYING for name in side) for side in sides]
    fewer, more = sorted(multiplied)
    return [one] if 0 < more <= _TIMES * fewer else []


def shared_out(whole: Floats, weights: Floats) -> Floats:
    """Return a sum in parts that are as these weights are."""
    total = float(weights.sum())
    shares = weights / total if total > 0 else np.full(len(weights), 1 / max(1, len(weights)))
    return np.asarray(float(whole.sum()) * shares)
