"""A device that is away: kernels that begin late although nothing holds them up, on one rank and not on the others.

Another process has the device then, by turns of a millisecond or so. The structure of the step says nothing of it, and
a late begin that it says nothing of may as well be a dependency that the replay does not know. But that would be the
same on every rank: what one rank alone has, where the others run the same launch at once, is its device's.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from scalescope.scaling.replay.graph import Graph, median
from scalescope.scaling.replay.ranks.side_by_side import SideBySide

#: A rank's begins are late by so many times what the others' are, for nothing that the traces show.
_TIMES = 3.0


def keep_absences(graph: Graph, side: SideBySide) -> SideBySide:
    """Let a traced graph's activities begin as late as they did where that is their device's doing.

    In place; `side`, which is of this graph, is returned with those times. What remains of `unexplained_ns` is what no
    rank's device explains.
    """
    launches = dict(side.launches)
    for rank in list(_that_stand_alone(graph, side)):
        for step in side.steps:
            own = side.launches[rank, step]
            dispatch = own.dispatch_ns.copy()
            at_once = side.others(rank, step, "beyond_ns") == 0  # where the others have such a launch at all
            for row in np.flatnonzero((own.beyond_ns > 0) & (own.stands_in >= 0)).tolist():
                if not at_once[own.stands_in[row]]:
                    continue
                away = float(own.beyond_ns[row])
                node = graph.activities[own.activity[row]]
                dispatch[row] += away
                graph.activities[own.activity[row]] = replace(node, dispatch_ns=node.dispatch_ns + away, beyond_ns=0.0)
                graph.unexplained_ns[rank] = max(0.0, graph.unexplained_ns[rank] - away)
            launches[rank, step] = dataclasses.replace(own, dispatch_ns=dispatch)
    return dataclasses.replace(side, launches=launches, _others={})


def _that_stand_alone(graph: Graph, side: SideBySide) -> Iterator[int]:
    """Yield the ranks on which much more is left unexplained than on the others: else it is the replay's own fault."""
    for rank in side.ranks if len(side.ranks) > 1 else ():
        others = median([graph.unexplained_ns.get(other, 0.0) for other in side.ranks if other != rank])
        if graph.unexplained_ns.get(rank, 0.0) > _TIMES * others:
            yield rank
