"""The compute kernels (or, on a CPU, operators) of a step, each with its own share of the step's compute time.

So that kernels of two runs can be laid side by side (same name, same ordinal in the step), the union of the compute
time is dealt out: an instant that several kernels share belongs to the one that started first. The shares of a step
add up to its compute exactly.
"""

import msgspec
import numpy as np

from scaling.intervals import Intervals, Ints, covered_before
from scaling.partition import Windows


class KernelTime(msgspec.Struct, frozen=True, gc=False):
    """One kernel of the step over a rank's steps: in how many it ran, and its shares' sum, in ns."""

    steps: int
    total_ns: int


class KernelTable(msgspec.Struct, frozen=True):
    """One rank's compute kernels by (name, ordinal of that name in the step)."""

    steps: int
    kernels: dict[tuple[str, int], KernelTime]

    @property
    def total_ns(self) -> int:
        """The compute time of all steps, in ns."""
        return sum(kernel.total_ns for kernel in self.kernels.values())


#: What a kernel that runs on from the step before has of this one.
CARRIED = "(kernels of the step before)"


def kernel_table(spans: Intervals, name: Ints, compute: Intervals, windows: Windows, names: list[str]) -> KernelTable:
    """Return the shares of kernels (spans ascending by start, and their names' indices) in the disjoint `compute`."""
    start, end = spans
    if start.size == 0 or len(windows) == 0:
        return KernelTable(len(windows), {})
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
    return KernelTable(len(windows), {key: KernelTime(steps[key], time) for key, time in total.items()})
