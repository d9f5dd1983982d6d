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
    return Steps(
        numbers=np.array([numbers[int(name)] for name in spans.name[order]], np.int64),
        start=spans.start[order],
        end=spans.end[order],
        thread=thread,
    )
