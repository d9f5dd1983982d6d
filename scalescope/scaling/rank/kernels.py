"""The compute kernels (or, on a CPU, operators) of a step, each with its own share of the step's compute time.

So that kernels of two runs can be laid side by side (same name, same ordinal in the step), the union of the compute
time is dealt out: an instant that several kernels share belongs to the one that started first. The shares of a step
add up to its compute exactly. Of each share it is told how much of it which collectives ran beside.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from scalescope.scaling.rank.partition import Windows
from scalescope.scaling.trace.intervals import Intervals, Ints, covered_before, intersect
from scalescope.scaling.trace.trace import Ids


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
    labels: tuple[str, ...]  # kinds of collectives, such as `all_reduce float32`
    overlap: Ints  # (kernels, labels): of `time`, how long such collectives ran meanwhile, ns

    @property
    def total_ns(self) -> int:
        """The compute time of all steps, in ns."""
        return int(self.time.sum())

    def overlaps(self) -> Iterator[tuple[tuple[str, int], list[int]]]:
        """Yield each kernel with the time that each label's collectives ran beside it, in ns."""
        columns = zip(self.name.tolist(), self.ordinal.tolist(), self.overlap.tolist(), strict=True)
        for name, ordinal, overlap in columns:
            yield (self.names[name], ordinal), overlap

    def items(self) -> Iterator[tuple[tuple[str, int], KernelTime]]:
        """Yield each kernel with its time."""
        columns = zip(self.name.tolist(), self.ordinal.tolist(), self.ran.tolist(), self.time.tolist(), strict=True)
        for name, ordinal, ran, time in columns:
            yield (self.names[name], ordinal), KernelTime(ran, time)


NO_OVERLAP: Mapping[str, Intervals] = MappingProxyType({})

#: What a kernel that runs on from the step before has of this one.
CARRIED = "(kernels of the step before)"


def kernel_table(
    spans: Intervals,
    name: Ints,
    compute: Intervals,
    windows: Windows,
    names: list[str],
    communication: Mapping[str, Intervals] = NO_OVERLAP,
) -> KernelTable:
    """Return the shares of kernels (spans ascending by start, and their names' indices) in the disjoint `compute`.

    `communication`: when collectives run, disjoint, by the label of their kind.
    """
    start, end = spans
    labels = tuple(communication)
    if start.size == 0:
        return _table(len(windows), {}, {}, labels, {})
    layers = [intersect(compute, communication[label]) for label in labels]
    # what of each kernel no earlier one covers
    reach = np.maximum.accumulate(end)
    own = np.minimum(np.maximum(start, np.concatenate((start[:1], reach[:-1]))), end)
    steps: dict[tuple[str, int], int] = {}
    total: dict[tuple[str, int], int] = {}
    overlap: dict[tuple[str, int], Ints] = {}
    for step in range(len(windows)):
        left, right = int(windows.edges[step]), int(windows.edges[step + 1])
        first = int(np.searchsorted(reach, left, side="right"))
        until = int(np.searchsorted(start, right))
        here = first + np.flatnonzero(end[first:until] > left)
        until_, from_ = np.clip(end[here], left, right), np.clip(own[here], left, right)
        share = covered_before(compute, until_) - covered_before(compute, from_)
        shared = (
            np.stack([covered_before(layer, until_) - covered_before(layer, from_) for layer in layers], axis=1)
            if layers
            else np.zeros((here.size, 0), np.int64)
        )
        ordinals: dict[int, int] = {}
        keys = set()
        rows = zip(start[here].tolist(), name[here].tolist(), share.tolist(), shared, strict=True)
        for begin, identity, time, meanwhile in rows:
            if begin < left:
                key = (CARRIED, 0)
            else:
                ordinal = ordinals[identity] = ordinals.get(identity, -1) + 1
                key = (names[identity], ordinal)
            keys.add(key)
            total[key] = total.get(key, 0) + time
            overlap[key] = overlap[key] + meanwhile if key in overlap else meanwhile
        for key in keys:
            steps[key] = steps.get(key, 0) + 1
    return _table(len(windows), steps, total, labels, overlap)


def _table(
    windows: int,
    steps: dict[tuple[str, int], int],
    total: dict[tuple[str, int], int],
    labels: tuple[str, ...],
    overlap: dict[tuple[str, int], Ints],
) -> KernelTable:
    numbers: dict[str, int] = {}
    return KernelTable(
        steps=windows,
        name=np.array([numbers.setdefault(name, len(numbers)) for name, _ in total], np.int32),
        names=tuple(numbers),
        ordinal=np.array([ordinal for _, ordinal in total], np.int32),
        ran=np.array([steps[key] for key in total], np.int32),
        time=np.array(list(total.values()), np.int64),
        labels=labels,
        overlap=np.array([overlap[key] for key in total], np.int64).reshape(len(total), len(labels)),
    )
