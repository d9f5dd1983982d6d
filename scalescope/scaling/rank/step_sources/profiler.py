"""Steps by the profiler's own annotation: `ProfilerStep#3`."""

import re

import numpy as np

from scalescope.scaling.rank.step_sources.steps import Steps
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import HostSpans, Trace

PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)$")


def by_profiler(trace: Trace) -> Steps | None:
    """Return the trace's ProfilerSteps; None where the job did not call the profiler's `step()`."""
    numbers = {index: int(match[1]) for index, name in enumerate(trace.names) if (match := PROFILER_STEP.match(name))}
    if not numbers:
        return None
    # torch 1.8 wrote annotations as operators
    for spans in (trace.annotations, trace.operators):
        found = np.flatnonzero(np.isin(spans.name, list(numbers)))
        if found.size:
            return _steps_of(spans, found, numbers)
    return None


def _steps_of(spans: HostSpans, found: Ints, numbers: dict[int, int]) -> Steps:
    order = found[np.argsort(spans.start[found], kind="stable")]
    # one thread annotates; a second that does so too (a nested profiler) would only repeat the steps
    threads = spans.thread[order]
    thread = int(threads[0])
    order = order[threads == thread]
    told = np.array([numbers[int(name)] for name in spans.name[order]], np.int64)
    if np.unique(told).size < told.size:  # what one number is of several steps tells, all would be one step's
        told = told[0] + np.arange(told.size)
    kept = _one_after_another(told)
    return Steps(
        numbers=told[kept],
        start=spans.start[order][kept],
        end=spans.end[order][kept],
        thread=thread,
        left_out=told.size - (kept.stop - kept.start),
    )


def _one_after_another(numbers: Ints) -> slice:
    """Return which steps are the longest stretch without a missing one; of several the last.

    A step lasts until the next begins: before one that is missing it would last for both.
    """
    edges = [0, *(np.flatnonzero(np.diff(numbers) > 1) + 1).tolist(), numbers.size]
    first = max(range(len(edges) - 1), key=lambda at: (edges[at + 1] - edges[at], at))
    return slice(edges[first], edges[first + 1])
