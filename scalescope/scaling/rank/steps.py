"""Which training step something belongs to: the ProfilerStep in which the host launched it.

The `gpu_user_annotation` of a ProfilerStep is no step: it covers only what the annotating thread launched, and the
backward pass is launched by another thread. So a device activity is followed back to its launch, and the launch's time
says the step, whatever thread it was on.
"""

import re
from dataclasses import dataclass

import numpy as np

from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import HostSpans, Trace

_PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)$")


@dataclass(frozen=True, slots=True)
class Steps:
    """The profiled steps on the host, ascending in time. Times in ns."""

    numbers: Ints
    start: Ints
    end: Ints
    thread: int | None  # the thread that annotates steps: the training loop's own

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


def find_steps(trace: Trace) -> Steps:
    """Return the trace's ProfilerSteps; none where the job did not call the profiler's `step()`."""
    numbers = {index: int(match[1]) for index, name in enumerate(trace.names) if (match := _PROFILER_STEP.match(name))}
    # torch 1.8 wrote annotations as operators
    for spans in (trace.annotations, trace.operators):
        found = np.flatnonzero(np.isin(spans.name, list(numbers))) if numbers else np.empty(0, np.int64)
        if found.size:
            return _steps_of(spans, found, numbers)
    empty = np.empty(0, np.int64)
    return Steps(empty, empty, empty, None)


def _steps_of(spans: HostSpans, found: Ints, numbers: dict[int, int]) -> Steps:
    order = found[np.argsort(spans.start[found], kind="stable")]
    # one thread annotates; a second that does so too (a nested profiler) would only repeat the steps
    threads = spans.thread[order]
    thread = int(threads[0])
    order = order[threads == thread]
    return Steps(
        numbers=np.array([numbers[int(name)] for name in spans.name[order]], np.int64),
        start=spans.start[order],
        end=spans.end[order],
        thread=thread,
    )
