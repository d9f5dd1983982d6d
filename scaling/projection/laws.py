"""How what is no transfer grows with the number of ranks: assumptions, said as such, each with its bounds.

Each law gives a factor over what the largest measured run has. The value follows a mechanism; the lower bound is that
nothing grows any more, the upper that each doubling of the ranks adds as much as the measured doublings did (log₂).
"""

import math
from statistics import NormalDist

from scaling.costs.interval import Interval

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


def inflation_growth(from_ranks: int, to_ranks: int, hidden: float) -> Interval:
    """Return the factor by which compute's slowing grows; `hidden`: by which the transfers under it take longer."""
    return Interval(hidden, min(1.0, hidden), max(hidden, doublings(from_ranks, to_ranks)))


def doublings(from_ranks: int, to_ranks: int) -> float:
    """Return how many times more doublings of one rank there are."""
    return math.log2(to_ranks) / math.log2(from_ranks)


def expected_last(ranks: int) -> float:
    """Return the expected largest of so many standard normal values (Blom 1958)."""
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
