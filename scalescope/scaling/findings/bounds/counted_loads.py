"""Batches that differ by rank and step, counted: shapes tell how much each rank multiplies in each step.

Now one rank has the longer sequences and now another, and each step waits for the one that has them. Counts know no
noise: what the ranks' compute takes an element follows from all steps of all of them, and the largest load of each step
less the mean of the ranks, at that pace, is what equal loads would bring.
"""

import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from scalescope.records.statistics import half_of_mean, student_95
from scalescope.scaling.rank.records.record import RankRecord

#: Ranks have other loads in a step where one has so many times another's; less is of a sequence or two.
_DIFFER = 1.03
#: So it is in so many of the steps, or a few differ, as a shorter last batch does.
_OFTEN = 0.5
#: Of fewer steps one rank has the most in all of them by chance.
LEAST_STEPS = 3


class CountedLoads(msgspec.Struct, frozen=True):
    """How many elements each rank multiplies in each step, as shapes tell."""

    elements: npt.NDArray[np.float64]  # by rank and step

    @property
    def differing(self) -> npt.NDArray[np.bool_]:
        """In which steps ranks have other loads than each other."""
        return np.asarray(self.elements.max(axis=0) >= _DIFFER * self.elements.min(axis=0))

    @property
    def take_turns(self) -> bool:
        """Whether most steps have a rank with more, and none has it in all of them."""
        differing = self.differing
        return bool(differing.mean() >= _OFTEN and differing.sum() >= LEAST_STEPS and max(self.most) < differing.sum())

    @property
    def most(self) -> list[int]:
        """In how many of the steps that differ each rank has the most."""
        first = self.elements.argmax(axis=0)[self.differing]
        return [int((first == at).sum()) for at in range(len(self.elements))]

    def lost_ms(self, taken_ns: npt.NDArray[np.float64]) -> tuple[float, float] | None:
        """Return what steps are longer by than with equal loads, ms, and half of its 95% interval, from what the ranks'
        compute takes by rank and step. None where it takes no longer with more.
        """
        count = self.elements.size
        loads, taken = (one.ravel() - one.mean() for one in (self.elements, taken_ns / 1e6))
        spread = float(loads @ loads)
        if count < 3 or not spread:
            return None
        pace = float(loads @ taken) / spread  # least squares, ms an element
        if pace <= 0:
            return None
        left = taken - pace * loads
        pace_half = student_95(count - 2) * math.sqrt(float(left @ left) / (count - 2) / spread)
        surplus = (self.elements.max(axis=0) - self.elements.mean(axis=0)).tolist()
        mean = statistics.fmean(surplus)
        return pace * mean, math.hypot(pace * half_of_mean(surplus), min(pace, pace_half) * mean)


def counted_loads(records: Mapping[int, RankRecord], ranks: Sequence[int], steps: Sequence[int]) -> CountedLoads | None:
    """Return the ranks' loads in these steps; None where shapes do not tell them of all."""
    if len(ranks) < 2 or any(not records[rank].loads.get(step) for rank in ranks for step in steps):
        return None
    return CountedLoads(np.array([[float(records[rank].loads[step]) for step in steps] for rank in ranks]))
