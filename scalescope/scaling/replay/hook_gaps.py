"""What else torch's bf16 hook costs than its casts: the device takes longer from one launch to the next.

Under the hook all of an eager step's launches, also the forward pass's, begin later behind the one before them: the
median from kernel to kernel grew from 1.4 to 3.4 µs, and idle time by 1.5 and 1.8 µs a launch on two H200s (U, torch
2.11, 1,150 launches a step). On four (A) it grew by 2.0 ms a step, and a step of half the batch (Q) became longer by
the same 1.5 ms. Why is not known. A compiled step became no longer (Q: +0.12 ms), so that there nothing is added.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.rank.timeline import COMMUNICATION
from scalescope.scaling.replay.buckets import StepBuckets
from scalescope.scaling.replay.graph import Graph

#: ns a launch; U's two ranks.
_LATER_NS = 1_600.0
#: What Inductor names its kernels.
_COMPILED = "triton_"


def begin_later(graph: Graph, steps: Sequence[StepBuckets]) -> None:
    """Let launches on the gradients' streams begin as late as under the hook, in place; not of compiled steps."""
    if any(one.name.startswith(_COMPILED) for one in graph.activities):
        return
    filling = {one.activity for step in steps for own in step.gradients.values() for one in own}
    for streams in graph.order.values():
        for stream in streams:
            if filling.isdisjoint(stream):
                continue
            for at in stream:
                one = graph.activities[at]
                if one.kind != COMMUNICATION:
                    graph.activities[at] = replace(one, dispatch_ns=one.dispatch_ns + _LATER_NS)
