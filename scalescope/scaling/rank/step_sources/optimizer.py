"""Steps by the optimizer's annotation, which torch writes by itself: one ends where `Optimizer.step#AdamW.step` does.

What was launched before the first one has ended is a step whose begin nobody knows, and what comes after the last one
is a step without its end: both are left out.
"""

import numpy as np

from scalescope.scaling.rank.step_sources.steps import Steps, numbered
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import Trace

_ANNOTATION = "Optimizer.step#"
#: Optimizers that step one after the other belong to one step of the job: nearer to each other than this share of the
#: median distance.
_TOGETHER = 0.2


def by_optimizer(trace: Trace) -> Steps | None:
    """Return the steps between the ends of the optimizers' own; None where there are fewer than two of those."""
    spans = trace.annotations
    named = np.array([name.startswith(_ANNOTATION) for name in trace.names], bool)
    rows = np.flatnonzero(named[spans.name]) if len(spans) else np.empty(0, np.int64)
    if rows.size < 2:
        return None
    rows = rows[np.argsort(spans.start[rows], kind="stable")]
    thread = int(spans.thread[rows[0]])
    rows = rows[spans.thread[rows] == thread]
    ends = _last_of_each(spans.start[rows], spans.end[rows])
    return numbered(ends[:-1], ends[1:], thread, "optimizer") if ends.size > 1 else None


def _last_of_each(start: Ints, end: Ints) -> Ints:
    """Return the ends, of optimizers that step together the last one's."""
    if start.size < 2:
        return end
    distance = start[1:] - start[:-1]
    gaps = start[1:] - end[:-1]
    last = np.append(gaps > _TOGETHER * float(distance.max()), True)
    ends: Ints = end[last]
    return ends
