"""Whether a trace's times can be times: a launch and an operator take microseconds, on whatever machine.

A converter that writes nanoseconds where Kineto has microseconds makes every time a thousandfold, on all ranks alike,
so that nothing in the trace contradicts anything else. What the host does tells it all the same.
"""

import numpy as np

from scalescope.scaling.rank.launches import is_kernel_launch
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import Trace

#: Fewer calls tell nothing.
_ENOUGH = 50
#: The quickest tenth of launches takes some µs: one that waits for room in a full queue takes longer, but not that many
#: do. That of operators takes less than 5 µs (a view computes nothing).
_QUICK, _LONGEST_LAUNCH_NS, _LONGEST_OPERATOR_NS = 10, 300_000, 50_000
#: Hardly any launch is over in less.
_MOST, _SHORTEST_NS = 90, 100


def impossible_call_ns(trace: Trace) -> int | None:
    """Return how long the host's quickest calls take, launches if there are some, where they cannot; else None."""
    if trace.framework != "torch":
        return None
    launching = np.array([is_kernel_launch(name) for name in trace.names], bool)
    runtime = trace.runtime
    launches = (runtime.end - runtime.start)[launching[runtime.name]] if len(runtime) else np.empty(0, np.int64)
    operators = trace.operators.end - trace.operators.start
    told = [
        (_percentile(times, _QUICK), longest)
        for times, longest in ((launches, _LONGEST_LAUNCH_NS), (operators, _LONGEST_OPERATOR_NS))
        if times.size >= _ENOUGH
    ]
    if told and all(quick > longest for quick, longest in told):
        return told[0][0]
    most = _percentile(launches, _MOST) if launches.size >= _ENOUGH else 0
    return most if 0 < most < _SHORTEST_NS else None


def _percentile(times: Ints, share: int) -> int:
    return int(np.percentile(times, share))
