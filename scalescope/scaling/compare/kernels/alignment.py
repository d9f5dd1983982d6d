"""Which call of one step is which of another's: by operator, in the order of the step."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from scalescope.scaling.compare.kernels.operators import Call
from scalescope.scaling.compare.kernels.sizes import size_classes

#: Longer steps are aligned by each operator's own count: the matrix below would not fit.
_MOST_CALLS = 6000

Pairs = list[tuple[int, int]]
_Token = tuple[str, int]  # an operator, and which of its sizes


def align(here: Sequence[Call], there: Sequence[Call]) -> tuple[Pairs, Pairs]:
    """Return pairs of calls of one operator, and pairs of other operators that stand at one place and are of one kind.

    Where both steps have as many of an operator, its calls are paired in order. Else the steps are aligned as a whole
    (the longest common subsequence of their operators, by size), so that one more layer is found to be one more, and
    what lies between two calls that match is paired by operator, then by kind. Of subsequences that are as long it is
    the same one whichever step is `here`: else one answer has kernels without a counterpart, and its reverse none.
    """
    if _order(here) < _order(there):
        same, placed = align(there, here)
        return sorted((left, right) for right, left in same), [(left, right) for right, left in placed]
    plain = [[(call.token, 0) for call in side] for side in (here, there)]
    if Counter(plain[0]) == Counter(plain[1]):
        same = _in_order(*plain)
    else:
        classes = size_classes(here, there)
        tokens = [[(token, size) for (token, _), size in zip(side, sizes, strict=True)]
                  for side, sizes in zip(plain, classes, strict=True)]  # fmt: skip
        same = (_in_order if max(map(len, tokens)) > _MOST_CALLS else _common)(*tokens)
    left = _rest(here, there, same, by_operator=True)
    same = sorted([*same, *left])
    return same, _rest(here, there, same, by_operator=False)


def _order(calls: Sequence[Call]) -> tuple[int, list[str], list[float]]:
    """Return what puts two steps into one order, whichever is asked about: their calls, and how long these take."""
    return len(calls), [call.token for call in calls], [call.us for call in calls]


def _in_order(here: Sequence[_Token], there: Sequence[_Token]) -> Pairs:
    places: dict[_Token, list[int]] = {}
    for at, token in enumerate(there):
        places.setdefault(token, []).append(at)
    taken: Counter[_Token] = Counter()
    pairs = []
    for at, token in enumerate(here):
        if taken[token] < len(places.get(token, ())):
            pairs.append((at, places[token][taken[token]]))
            taken[token] += 1
    return pairs


def _common(here: Sequence[_Token], there: Sequence[_Token]) -> Pairs:
    """Return the longest common subsequence as pairs of places."""
    numbers: dict[_Token, int] = {}
    left, right = (np.array([numbers.setdefault(token, len(numbers)) for token in side]) for side in (here, there))
    length = np.zeros((len(left) + 1, len(right) + 1), np.int16)
    for at, number in enumerate(left, 1):
        best = np.maximum(length[at - 1, 1:], length[at - 1, :-1] + (right == number))
        length[at, 1:] = np.maximum.accumulate(best)
    pairs: Pairs = []
    row, column = len(left), len(right)
    while row and column:
        if left[row - 1] == right[column - 1] and length[row, column] == length[row - 1, column - 1] + 1:
            row, column = row - 1, column - 1
            pairs.append((row, column))
        elif length[row - 1, column] >= length[row, column - 1]:
            row -= 1
        else:
            column -= 1
    return pairs[::-1]


def _rest(here: Sequence[Call], there: Sequence[Call], same: Pairs, *, by_operator: bool) -> Pairs:
    """Pair what lies between two matched calls on both sides: by operator, or of whatever operator by kind."""
    ordered = sorted(same)
    # of pairs that cross, those that go on ascending are the frame
    frame, reach = [], -1
    for left, right in ordered:
        if right > reach:
            frame.append((left, right))
            reach = right
    taken = ({left for left, _ in same}, {right for _, right in same})
    found: Pairs = []
    before = (-1, -1)
    for after in [*frame, (len(here), len(there))]:
        gap_here = [at for at in range(before[0] + 1, after[0]) if at not in taken[0]]
        gap_there = [at for at in range(before[1] + 1, after[1]) if at not in taken[1]]
        for at in gap_here:
            key = _key(here[at], by_operator)
            match = next((other for other in gap_there if _key(there[other], by_operator) == key), None)
            if match is not None:
                gap_there.remove(match)
                found.append((at, match))
        before = after
    return found


def _key(call: Call, by_operator: bool) -> str:
    return call.token if by_operator else call.kind
