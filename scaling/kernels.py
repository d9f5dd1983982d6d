"""The compute kernels (or, on a CPU, operators) of a step, each with its own share of the step's compute time.

So that kernels of two runs can be laid side by side (same name, same ordinal in the step), the union of the compute
time is dealt out: an instant that several kernels share belongs to the one that started first. The shares of a step
add up to its compute exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scaling.intervals import Intervals, Ints, covered_before
from scaling.partition import Windows
from scaling.trace import Ids


class KernelTime(NamedTuple):
    """One kernel of the step over a rank's steps: in how many it ran, and its shares' sum, in ns."""

    steps: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class KernelTable:
    """One rank's compute kernels by (name, ordinal of that name in the step). In columns: a study keeps one a rank."""

    steps: int  # of the rank
    names: tuple[str, ...]
    name: Ids  # index into `names`
    ordinal: Ids
    ran: Ids  # in how many steps
    time: Ints  # ns, the sum over the steps

    @property
    def total_ns(self) -> int:
        """The compute time of all steps, in ns."""
        return int(self.time.sum())

    def items(self) -> Iterator[tuple[tuple[str, int], KernelTime]]:
        """Yield each kernel with its time."""
        columns = zip(self.name.tolist(), self.ordinal.tolist(), self.ran.tolist(), self.time.tolist(), strict=True)
        for name, ordinal, ran, time in columns:
            yield (self.names[name], ordinal), KernelTime(ran, time)


#: What a kernel that runs on from the step before has of this one.
CARRIED = "(kernels of the step before)"


def kernel_table(spans: Intervals, name: Ints, compute: Intervals, windows: Windows, names: list[str]) -> KernelTable:
    """Return the shares of kernels (spans ascending by start, and their names' indices) in the disjoint `compute`."""
    start, end = spans
    if start.size == 0:
        return _table(len(windows), {}, {})
    # what of each kernel no earlier one covers
    reach = np.maximum.accumulate(end)
    own = np.minimum(np.maximum(start, np.concatenate((start[:1], reach[:-1]))), end)
    steps: dict[tuple[str, int], int] = {}
    total: dict[tuple[str, int], int] = {}
    for step in range(len(windows)):
        left, right = int(windows.edges[step]), int(windows.edges[step + 1])
        first = int(np.searchsorted(reach, left, side="right"))
        until = int(np.searchsorted(start, right))
        here = first + np.flatnonzero(end[first:until] > left)
        share = covered_before(compute, np.clip(end[here], left, right))
        share -= covered_before(compute, np.clip(own[here], left, right))
        ordinals: dict[int, int] = {}
        keys = set()
        for begin, identity, time in zip(start[here].tolist(), name[here].tolist(), share.tolist(), strict=True):
            if begin < left:
                key = (CARRIED, 0)
            else:
                ordinal = ordinals[identity] = ordinals.get(identity, -1) + 1
                key = (names[identity], ordinal)
            keys.add(key)
            total[key] = total.get(key, 0) + time
        for key in keys:
            steps[key] = steps.get(key, 0) + 1
    return _table(len(windows), steps, total)


def _table(windows: int, steps: dict[tuple[str, int], int], total: dict[tuple[str, int], int]) -> KernelTable:
    numbers: dict[str, int] = {}
    return KernelTable(
        steps=windows,
        name=np.array([numbers.setdefault(name, len(numbers)) for name, _ in total], np.int32),
        names=tuple(numbers),
        ordinal=np.array([ordinal for _, ordinal in total], np.int32),
        ran=np.array([steps[key] for key in total], np.int32),
        time=np.array(list(total.values()), np.int64),
    )
