"""Hosts that wait for batches of worker processes: a batch comes when its worker has made it, whatever the host does.

What the host takes before it asks for a batch is not in the batch's way: where that gets less, the wait grows by as
much. So a batch that was waited for comes as long after the one before as it did, and no sooner.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.replay.node_columns import Array
from scalescope.scaling.replay.simulate import simulate

Floats = npt.NDArray[np.float64]

#: Where hosts wait for their devices in between, what they take is known once a replay has run: so many are tried.
_ROUNDS = 2


def keep_pace(graph: Graph, before: Graph, freed: frozenset[int] = frozenset()) -> None:
    """Let batches of worker processes come in a changed graph, in place, as long after one another as in `before`.

    `freed`: ranks whose batches are there anyhow. Raises RunError where a replay stalls.
    """
    paced = {
        rank: calls
        for rank, calls in graph.paced.items()
        if rank not in freed and len(graph.calls[rank]) == len(before.calls[rank])
    }
    for rank, calls in paced.items():
        old, new = _taken(before.call_columns(rank)), _taken(graph.call_columns(rank))
        _longer(graph, rank, calls, _between(np.cumsum(old - new)[calls]))
    if not any(_waits_between(graph, rank) or _waits_between(before, rank) for rank in paced):
        return
    asked = _asked(before, paced)
    for _ in range(_ROUNDS):
        now = _asked(graph, paced)
        for rank, calls in paced.items():
            _longer(graph, rank, calls, _between(asked[rank]) - _between(now[rank]))


def _taken(calls: Mapping[str, Array]) -> Floats:
    """Return what a host takes on its way to each call and in it, where it waits for nothing, ns."""
    taken: Floats = calls["think_ns"] + np.where(calls["awaits"] < 0, calls["duration_ns"], 0.0)
    return taken


def _between(instants: Floats) -> Floats:
    found: Floats = np.diff(instants, prepend=0.0)
    return found


def _waits_between(graph: Graph, rank: int) -> bool:
    return bool((graph.call_columns(rank)["awaits"] >= 0).any())


def _asked(graph: Graph, paced: Mapping[int, list[int]]) -> dict[int, Floats]:
    """Return when each batch is there in a replay: the next launch comes as long after it in each."""
    timing = simulate(graph)
    found = {}
    for rank, calls in paced.items():
        launches = graph.call_columns(rank)["launches"]
        known = np.flatnonzero(launches >= 0)
        following = known[np.minimum(np.searchsorted(known, calls), known.size - 1)]
        found[rank] = np.array([timing.launch[at] for at in launches[following].tolist()], np.float64)
    return found


def _longer(graph: Graph, rank: int, calls: list[int], by_ns: Floats) -> None:
    own = graph.calls[rank]
    changed = list(own)
    for at, more in zip(calls, by_ns.tolist(), strict=True):
        call = own[at]
        more = max(more, -call.data_ns)
        changed[at] = replace(call, think_ns=call.think_ns + more, data_ns=call.data_ns + more)
    graph.calls[rank] = changed
