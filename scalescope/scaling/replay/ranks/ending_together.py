"""Kernels of no library that is known, which wait for other ranks all the same: collectives that pass for compute.

A collective's members begin when each rank comes to it and end together, once the last one has come. No compute does
that: what begins earlier or takes longer on one rank ends as much earlier or later there.
"""

from collections import Counter

import numpy as np

from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.ranks.alignment import CLOCK_SLACK_NS
from scalescope.scaling.replay.graph import Activity, Graph
from scalescope.scaling.replay.ranks.side_by_side import SideBySide

#: Members whose lengths differ by so much began apart, and tell whether they end together.
_TELLING_NS = 4 * CLOCK_SLACK_NS
#: So many launches tell of a kernel, and so many of them are to agree, as of all that it has.
_LEAST, _AGREEING = 3, 0.8


def ending_together(graph: Graph, side: SideBySide) -> dict[str, float]:
    """Return the compute kernels that end together on ranks where they began apart, with ms a step on the mean rank."""
    telling: Counter[str] = Counter()
    together: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    all_together: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    for step in side.steps:
        first: dict[int, Activity] = {}
        for rank in side.ranks:
            own = side.launches[rank, step]
            for row in np.flatnonzero(own.place >= 0).tolist():
                node = graph.activities[own.activity[row]]
                if node.kind != COMPUTE:
                    continue
                taken[node.name] += node.traced_end - node.traced_start
                place = int(own.place[row])
                if place not in first:
                    first[place] = node
                    continue
                other = first[place]
                if other.name != node.name:
                    continue
                longer = (node.traced_end - node.traced_start) - (other.traced_end - other.traced_start)
                ends_alike = abs(node.traced_end - other.traced_end) <= CLOCK_SLACK_NS
                pairs[node.name] += 1
                all_together[node.name] += ends_alike
                if abs(longer) > _TELLING_NS:
                    telling[node.name] += 1
                    together[node.name] += ends_alike
    return {
        name: taken[name] / 1e6 / len(side.steps) / len(side.ranks)
        for name, count in telling.items()
        if count >= _LEAST and together[name] >= _AGREEING * count and all_together[name] >= _AGREEING * pairs[name]
    }
