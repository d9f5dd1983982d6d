"""Kernels on several streams of one device, as cuDNN's recurrent layers have them: what they wait for beside their own.

Which event a stream waits for is not in the trace. While its host is late, each kernel begins as it is launched, and
nothing tells what else it would have waited for, nor whether the device has room for it beside another: a host that is
ahead would then have all streams run at once, and the device be done in less time than it computes for. So what was
launched before, and had ended, goes before; what ran side by side may do so again.

An event comes as something ends. A kernel that begins in the midst of others, later than anything tells, had no room on
the device until some of their blocks were through: it begins as late again.
"""

from collections.abc import Mapping

import numpy as np

from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.graph import Activity, Graph
from scalescope.scaling.trace.intervals import Intervals, covered_before

#: A device is full of other streams' kernels where those run for so much of what a kernel is late by.
_FULL = 0.95


def keep_turns(graph: Graph, rank: int, launched: Mapping[int, float]) -> None:
    """Let each kernel of a rank wait for those of its other streams that were launched, and had ended, before it did.

    `launched`: when each activity was.
    """
    streams = [
        [at for at in own if graph.activities[at].kind == COMPUTE and at in launched] for own in graph.order[rank]
    ]
    streams = [own for own in streams if own]
    if len(streams) < 2:
        return
    passed = [0] * len(streams)  # how many of each stream had ended
    waited = [[-1] * len(streams) for _ in streams]  # by stream: for which one of each other one it has waited
    begun = sorted((graph.activities[at].traced_start, which, at) for which, own in enumerate(streams) for at in own)
    for instant, which, at in begun:
        for other, own in enumerate(streams):
            while passed[other] < len(own) and graph.activities[own[passed[other]]].traced_end <= instant:
                passed[other] += 1
            last = passed[other] - 1
            if other != which and last > waited[which][other] and launched[own[last]] <= launched[at]:
                waited[which][other] = last
                graph.after.setdefault(at, []).append(own[last])


def had_no_room(node: Activity, late_ns: float, computing: Intervals) -> bool:
    """Tell whether other streams' kernels ran while a kernel was late, and not only in the gaps of its own stream."""
    if node.kind != COMPUTE:
        return False
    span = np.array([node.traced_start - round(late_ns), node.traced_start], np.int64)
    begun, over = covered_before(computing, span).tolist()
    return bool(over - begun >= _FULL * late_ns)
