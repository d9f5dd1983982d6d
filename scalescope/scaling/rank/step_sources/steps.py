"""The steps of a trace on the host, whatever told them."""

import msgspec
import numpy as np

from scalescope.scaling.answer import StepSource
from scalescope.scaling.trace.intervals import Ints


class Steps(msgspec.Struct, frozen=True):
    """The profiled steps on the host, ascending in time. Times in ns."""

    numbers: Ints
    start: Ints
    end: Ints
    thread: int | None  # the thread that annotates steps: the training loop's own
    source: StepSource | None = "profiler"  # what told them; None where nothing did
    kinds: tuple[str, ...] = ()  # of a server's iterations, one each
    left_out: int = 0  # so many more there are, before or behind a step that is missing

    def __len__(self) -> int:
        return int(self.numbers.size)

    def of(self, instants: Ints) -> Ints:
        """Return the index of the step each instant lies in, -1 before the first step and after the last.

        A step reaches to the beginning of the next one: what is launched in the profiler's own few µs between two
        annotations belongs to the step before.
        """
        if not len(self):
            return np.full(instants.size, -1, np.int64)
        index = np.searchsorted(self.start, instants, side="right") - 1
        index[instants > self.end[-1]] = -1
        return index.astype(np.int64)

    def first(self, count: int) -> "Steps":
        """Return so many of the steps, from the first."""
        numbers, start, end = self.numbers[:count], self.start[:count], self.end[:count]
        return Steps(numbers, start, end, self.thread, self.source, self.kinds[:count], self.left_out)

    def within(self, first: int, last: int) -> "Steps":
        """Return those of the steps whose numbers are among these."""
        kept = (self.numbers >= first) & (self.numbers <= last)
        kinds = tuple(kind for kind, keep in zip(self.kinds, kept.tolist(), strict=True) if keep) if self.kinds else ()
        return Steps(self.numbers[kept], self.start[kept], self.end[kept], self.thread, self.source, kinds)

    def shifted(self, ns: int) -> "Steps":
        """Return the same steps on a clock that is so many ns ahead."""
        return Steps(self.numbers, self.start + ns, self.end + ns, self.thread, self.source, self.kinds, self.left_out)


_NONE = np.empty(0, np.int64)
NO_STEPS = Steps(_NONE, _NONE, _NONE, thread=None, source=None)


def numbered(start: Ints, end: Ints, thread: int | None, source: StepSource, kinds: tuple[str, ...] = ()) -> Steps:
    """Return steps that no name numbers: counted from 0."""
    return Steps(np.arange(start.size, dtype=np.int64), start, end, thread, source, kinds)
