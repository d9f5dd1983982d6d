"""Whether a trace's times can be times: a launch and a view take microseconds, on whatever machine.

A converter that writes nanoseconds where Kineto has microseconds makes every time a thousandfold, on all ranks alike,
so that nothing in the trace contradicts anything else. What the host does tells it all the same.
"""

import re

import numpy as np

from scalescope.scaling.rank.launches import is_kernel_launch
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import Trace

#: Fewer launches tell nothing, and fewer views.
_ENOUGH, _ENOUGH_VIEWS = 50, 10
#: Operators that lay another view over a tensor, or make an empty one: they compute nothing, however large it is. What
#: computes takes milliseconds by rights, and of a compiled step nothing else may be recorded.
_VIEW = re.compile(
    r"aten::(_unsafe_|_reshape_)?(view|reshape|alias|t|transpose|permute|expand|as_strided|detach_?|slice|select|narrow"
    r"|squeeze|unsqueeze|unbind|split|empty|empty_strided|empty_like|resolve_conj|resolve_neg)$"
)
#: The quickest tenth of launches takes some µs: one that waits for room in a full queue takes longer, but not that many
#: do where views are as they should be. That of views takes less than 5 µs.
_QUICK, _LONGEST_LAUNCH_NS, _LONGEST_VIEW_NS = 10, 300_000, 50_000
#: Hardly any launch is over in less.
_MOST, _SHORTEST_NS = 90, 100


def impossible_call_ns(trace: Trace) -> int | None:
    """Return how long the host's quickest calls take, launches if there are some, where they cannot; else None."""
    if trace.framework != "torch":
        return None
    launching = np.array([is_kernel_launch(name) for name in trace.names], bool)
    viewing = np.array([_VIEW.match(name) is not None for name in trace.names], bool)
    runtime, operators = trace.runtime, trace.operators
    launches = (runtime.end - runtime.start)[launching[runtime.name]] if len(runtime) else np.empty(0, np.int64)
    views = (operators.end - operators.start)[viewing[operators.name]] if len(operators) else np.empty(0, np.int64)
    told = [
        (_percentile(times, _QUICK), longest)
        for times, enough, longest in (
            (launches, _ENOUGH, _LONGEST_LAUNCH_NS),
            (views, _ENOUGH_VIEWS, _LONGEST_VIEW_NS),
        )
        if times.size >= enough
    ]
    known = views.size >= _ENOUGH_VIEWS or not len(operators)  # launches alone may all wait for a full queue
    if told and known and all(quick > longest for quick, longest in told):
        return told[0][0]
    most = _percentile(launches, _MOST) if launches.size >= _ENOUGH else 0
    return most if 0 < most < _SHORTEST_NS else None


def _percentile(times: Ints, share: int) -> int:
    return int(np.percentile(times, share))
