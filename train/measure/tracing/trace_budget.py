"""How many steps a rank may still record, so that its traces stay within `profiler.max_mib`. Torch-free.

How large a trace becomes is known only once it is written, and then it is too late. But one step's events can be
counted, and events take much the same room everywhere: 21 to 37 bytes each in the file and 260 to 490 while it is
written (GPT-2 and ResNet-50 on H200s, CPU traces with shapes, stacks and memory). What is used lies above them.
"""

from dataclasses import dataclass

_PACKED_BYTES = 40
_PLAIN_BYTES = 500
_MIB = 2**20


@dataclass
class TraceBudget:
    """One rank's room for traces; `None`: no limit."""

    max_mib: float | None
    events_per_step: int | None = None  # as counted in one step; None until one was
    spent_mib: float = 0.0

    @property
    def wants_count(self) -> bool:
        """Whether a step has still to be counted."""
        return self.max_mib is not None and self.events_per_step is None

    def steps_that_fit(self, wanted: int) -> int:
        """Return how many of a window's steps there is room for; all of them while nothing is known."""
        if self.max_mib is None or not self.events_per_step:
            return wanted
        left_mib = self.max_mib - self.spent_mib
        return max(0, min(wanted, int(left_mib / self.packed_mib(1))))

    def spend(self, steps: int) -> None:
        """Take note of steps that were recorded."""
        self.spent_mib += self.packed_mib(steps)

    def packed_mib(self, steps: int) -> float:
        """Return about what a trace of so many steps takes in its file."""
        return steps * (self.events_per_step or 0) * _PACKED_BYTES / _MIB

    def plain_bytes(self, steps: int) -> int:
        """Return about what it takes on the disk while it is being written."""
        return steps * (self.events_per_step or 0) * _PLAIN_BYTES
