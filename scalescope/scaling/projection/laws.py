"""How what is no transfer grows with the number of ranks: assumptions, said as such, each with its bounds.

Each law gives a factor over what the largest measured run has. The value follows a mechanism; the lower bound is that
nothing grows any more, the upper that each doubling of the ranks adds as much as the measured doublings did (log₂).
"""

import math
from functools import lru_cache
from statistics import NormalDist

from scalescope.scaling.costs.interval import Interval

_NORMAL = NormalDist()
_REACH, _CELL = 9.0, 0.01  # of the integral, in standard deviations

WAIT = (
    "exposed wait grows like the expected last of n equal arrivals (normal); at least not at all, at most as much "
    "again with each doubling"
)
INFLATION = (
    "slower compute grows with the time that transfers run under compute; at least not at all, at most as much again "
    "with each doubling"
)


def wait_growth(from_ranks: int, to_ranks: int) -> Interval:
    """Return the factor by which the mean rank's wait for the last one grows."""
    value = expected_last(to_ranks) / expected_last(from_ranks)
    return Interval(value, min(1.0, value), max(value, doublings(from_ranks, to_ranks)))


def inflation_growth(from_ranks: int, to_ranks: int, hidden: float, since: int = 1) -> Interval:
    """Return the factor by which compute's slowing grows; `hidden`: by which the transfers under it take longer.

    `since`: the rank count that it is the slowing against.
    """
    return Interval(hidden, min(1.0, hidden), max(hidden, doublings(from_ranks, to_ranks, since)))


def doublings(from_ranks: int, to_ranks: int, since: int = 1) -> float:
    """Return how many times more doublings of `since` ranks there are."""
    return math.log2(to_ranks / since) / math.log2(from_ranks / since)


@lru_cache
def expected_last(ranks: int) -> float:
    """Return the expected largest of so many standard normal values: ∫ (1 − Φⁿ) above 0 less ∫ Φⁿ below, by sums."""
    cells = round(_REACH / _CELL)
    below = (_NORMAL.cdf((at + 0.5) * _CELL) ** ranks for at in range(-cells, 0))
    above = (1 - _NORMAL.cdf((at + 0.5) * _CELL) ** ranks for at in range(cells))
    return (sum(above) - sum(below)) * _CELL
