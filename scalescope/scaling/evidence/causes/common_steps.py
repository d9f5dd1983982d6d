"""The ranks' host evidence side by side: the steps that all of them have, as tables of ranks and steps."""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from scalescope.scaling.evidence.host_evidence import HostEvidence, PerStep
from scalescope.scaling.trace.intervals import Ints


class CommonSteps:
    """Ranks ascending, and the steps that all of them recorded."""

    def __init__(self, by_rank: Mapping[int, HostEvidence]) -> None:
        self.by_rank = dict(sorted(by_rank.items()))
        self.ranks = list(self.by_rank)
        numbers = [set(one.steps) for one in self.by_rank.values()]
        self.steps: PerStep = tuple(sorted(set.intersection(*numbers))) if numbers else ()
        self._at = {rank: [one.steps.index(number) for number in self.steps] for rank, one in self.by_rank.items()}
        lengths = self.table(lambda one: one.step_ns)
        self.step_ns = float(lengths.mean()) if lengths.size else 0.0
        self.open_ended = any(one.open_ended for one in self.by_rank.values())  # the last step, on one of them
        self.on_cpu = any(one.on_cpu for one in self.by_rank.values())  # hosts compute, and share their cores

    def __len__(self) -> int:
        return len(self.steps)

    def row(self, rank: int, values: PerStep) -> Ints:
        """Return one rank's values of the common steps."""
        return np.array(values, np.int64)[self._at[rank]]

    def table(self, values: Callable[[HostEvidence], PerStep | None]) -> Ints:
        """Return values of the common steps, (ranks, steps); 0 where a rank has none."""
        found = np.zeros((len(self.ranks), len(self.steps)), np.int64)
        for at, (rank, one) in enumerate(self.by_rank.items()):
            if (row := values(one)) is not None:
                found[at] = self.row(rank, row)
        return found


def beyond_others(table: Ints) -> Ints:
    """Return by how much each rank's value exceeds the median of the other ranks', a step; of one rank alone, zeros."""
    excess: Ints = np.maximum(against_others(table), 0)
    return excess


def against_others(table: Ints) -> Ints:
    """Return each rank's value less the median of the other ranks', a step; of one rank alone, zeros."""
    ranks = table.shape[0]
    if ranks < 2:
        return np.zeros_like(table)
    beyond: Ints = np.rint(table - _median_of_others(table)).astype(np.int64)
    return beyond


def _median_of_others(table: Ints) -> npt.NDArray[np.float64]:
    """Return for each rank the median of the other ranks' values, a step: one order tells those of all."""
    others = table.shape[0] - 1
    order = np.argsort(table, axis=0, kind="stable")
    place = np.argsort(order, axis=0)  # of each rank's value among all
    ascending = np.take_along_axis(table, order, axis=0)
    low, high = (
        np.where(middle < place, ascending[middle], ascending[middle + 1])
        for middle in ((others - 1) // 2, others // 2)
    )
    median: npt.NDArray[np.float64] = (low + high) / 2
    return median
