"""Whether devices may be slower in an untraced step than in the profiled ones: at their power limit.

Products draw the power. While it is recorded, a host leaves its device idle now and then, and that comes back as higher
clocks; where the device has no such rest, they are lower. Of a step that such a device fills, nobody can tell by its
length what recording costs the hosts.
"""

from collections.abc import Mapping

import numpy as np

from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.trace.intervals import Intervals, union
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of

#: A device fills a step that it computes for so much of, and is at its power limit if so much of that is products.
_COMPUTES, _MULTIPLIES = 0.8, 0.25
#: It takes up to so many times as long then: H200s took 1.07 to 1.12 times as long as in the few steps of a window. A
#: step that is longer than that, by what recording is likely to cost, has something that holds its hosts up.
MOST_SLOWER = 1.15


def at_power_ns(graph: Graph, likely_ns: float, untraced_ns: float) -> float:
    """Return how long a step may be that devices at their power limit fill, ns; 0 where they do not fill this one.

    `likely_ns`: the step where recording costs what is likely. One that is longer than it was leaves nothing to them.
    """
    filled = likely_ns <= untraced_ns and _may_be_at_power(graph, untraced_ns)
    return likely_ns * MOST_SLOWER if filled else 0.0


def _may_be_at_power(graph: Graph, step_ns: float) -> bool:
    """Tell whether the busiest device computes for most of a step so long, and multiplies for much of that."""
    steps = max(1, len(graph.step_numbers))
    rows: dict[int, list[int]] = {}
    for at, node in enumerate(graph.activities):
        if node.kind == COMPUTE and node.step >= 0:
            rows.setdefault(node.rank, []).append(at)
    multiplies = {name: kind_of(name) in MULTIPLYING for name in {graph.activities[at].name for at in _all(rows)}}
    for own in rows.values():
        nodes = [graph.activities[at] for at in own]
        spans = union(Intervals(*(np.array([getattr(one, edge) for one in nodes], np.int64)
                                  for edge in ("traced_start", "traced_end"))))  # fmt: skip
        taken = [one.traced_end - one.traced_start for one in nodes]
        products = sum(ns for one, ns in zip(nodes, taken, strict=True) if multiplies[one.name])
        filled = float((spans.ends - spans.starts).sum()) / steps
        if filled >= _COMPUTES * step_ns and products >= _MULTIPLIES * sum(taken):
            return True
    return False


def _all(rows: Mapping[int, list[int]]) -> list[int]:
    return [at for own in rows.values() for at in own]
