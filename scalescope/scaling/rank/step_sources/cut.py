"""Which steps of a file that ends early are whole.

A profiler writes operators first, a thread after the other, and then what they launched, not all in the order of time:
the last step that anything is left of is cut, and so may earlier ones be. A product always launches a kernel, and a
collective that is handed over runs: where the file holds the one without the other, the step is not whole.
"""

import numpy as np

from scalescope.scaling.rank.step_sources.steps import Steps
from scalescope.scaling.trace.communication_args import MULTIPLIES
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import Trace

_COLLECTIVES = "c10d::"


def whole_by_launches(trace: Trace, steps: Steps, launch: Ints, thread: Ints) -> int:
    """Return how many steps, from the first, have launched something in each product; -1 where nothing is cut.

    `launch`, `thread`: when and by which thread each activity was launched. Times on the file's clock.
    """
    if not trace.cut_off or not len(steps):
        return -1
    spans = trace.operators
    multiplies = np.array([name in MULTIPLIES for name in trace.names], bool)
    rows = np.flatnonzero(multiplies[spans.name]) if len(spans) else np.empty(0, np.int64)
    idle = np.ones(rows.size, bool)
    for one in np.unique(spans.thread[rows]).tolist():
        own = spans.thread[rows] == one
        launched = np.sort(launch[(thread == one) & (launch >= 0)])
        first = np.searchsorted(launched, spans.start[rows[own]], side="left")
        idle[own] = np.searchsorted(launched, spans.end[rows[own]], side="right") == first
    return _before(steps, steps.of(spans.start[rows[idle]]))


def whole_by_collectives(trace: Trace, steps: Steps, run: Ints) -> int:
    """Return how many steps, from the first, have run as many collectives as they handed over, but for the last step;
    -1 where nothing is cut. `run`: when collectives began, on the file's clock.
    """
    if not trace.cut_off or not len(steps):
        return -1
    handing = np.array([name.startswith(_COLLECTIVES) for name in trace.names], bool)
    spans = trace.operators
    handed = spans.start[handing[spans.name]] if len(spans) else np.empty(0, np.int64)
    counts = [np.bincount(at[at >= 0], minlength=len(steps)) for at in (steps.of(handed), steps.of(run))]
    return min(max(0, len(steps) - 1), _before(steps, np.flatnonzero(counts[0] > counts[1])))


def whole_by_operators(trace: Trace, steps: Steps) -> int:
    """Return how many steps of the loop's thread are whole, whatever ran beside it: all but the last; 0 where the trace
    names no steps, or is not cut. A profiler writes a thread's operators in the order of time.
    """
    return len(steps) - 1 if trace.cut_off and len(steps) > 1 else 0


def _before(steps: Steps, broken: Ints) -> int:
    """Return how many steps come before the first that is not whole; `broken`: indices of steps, -1 for none."""
    return int(min(broken[broken >= 0], default=len(steps)))
