"""When everything of a replayed graph ran."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from scalescope.scaling.replay.graph import Graph


class Timing(msgspec.Struct, frozen=True):
    """When everything ran, ns, by activity."""

    begin: Sequence[float]
    end: Sequence[float]
    launch: Sequence[float]  # when the host began to launch it; -1 where no call does
    loading: dict[int, list[tuple[float, float]]]  # by rank: when its host loads data between two calls

    def step_ns(self, graph: Graph) -> dict[int, list[float]]:
        """Return the length of each step on each rank; the last ends with the last of its own activities."""
        last_step: dict[int, float] = {}
        for at in graph.living():
            node = graph.activities[at]
            if node.step >= 0:
                last_step[node.rank] = max(last_step.get(node.rank, 0.0), self.end[at])
        found: dict[int, list[float]] = {}
        for rank in graph.ranks:
            edges = [self.begin[at] for at in graph.steps[rank]]
            close = last_step.get(rank, max((self.end[at] for at in graph.steps[rank]), default=0.0))
            edges.append(max(close, edges[-1]) if edges else close)
            found[rank] = [right - left for left, right in pairwise(edges)]
        return found
