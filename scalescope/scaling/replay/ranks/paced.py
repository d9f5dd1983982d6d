"""Hosts that wait for batches of worker processes: a batch comes when its worker has made it, whatever the host does.

What the host takes before it asks for a batch is not in the batch's way: where that gets less, the wait grows by as
much. So a batch that was late comes as long after the one before as it did, and no sooner. One that was there when it
was asked for (`late_batches`) is there earlier, too: its worker stood idle.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from scalescope.scaling.replay.graph import Graph, LateBatch
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
        _longer(graph, rank, calls, _since(np.cumsum(old - new), calls))
    if not any(_waits_between(graph, rank) or _waits_between(before, rank) for rank in paced):
        return
    asked = _asked(before, paced)
    for _ in range(_ROUNDS):
        now = _asked(graph, paced)
        for rank, calls in paced.items():
            _longer(graph, rank, calls, asked[rank] - now[rank])


def _taken(calls: Mapping[str, Array]) -> Floats:
    """Return what a host takes on its way to each call and in it, where it waits for nothing, ns."""
    taken: Floats = calls["think_ns"] + np.where(calls["awaits"] < 0, calls["duration_ns"], 0.0)
    return taken


def _since(passed: Floats, late: Sequence[LateBatch]) -> Floats:
    """Return what passes until each late batch, from where it counts, by what has passed at all of a rank's calls."""
    since = np.array([one.since for one in late], np.int64)
    found: Floats = passed[[one.call for one in late]] - np.where(since >= 0, passed[since], 0.0)
    return found


def _waits_between(graph: Graph, rank: int) -> bool:
    return bool((graph.call_columns(rank)["awaits"] >= 0).any())


def _asked(graph: Graph, paced: Mapping[int, Sequence[LateBatch]]) -> dict[int, Floats]:
    """Return what passes until each batch is there in a replay: the next launch comes as long after it in each."""
    timing = simulate(graph)
    found = {}
    for rank, late in paced.items():
        launches = graph.call_columns(rank)["launches"]
        known = np.flatnonzero(launches >= 0)
        following = known[np.minimum(np.searchsorted(known, np.arange(launches.size)), known.size - 1)]
        found[rank] = _since(np.array(timing.launch)[launches[following]], late)
    return found


def _longer(graph: Graph, rank: int, late: Sequence[LateBatch], by_ns: Floats) -> None:
    own = graph.calls[rank]
    changed = list(own)
    for one, more in zip(late, by_ns.tolist(), strict=True):
        at, call = one.call, own[one.call]
        more = max(more, -call.data_ns)
        changed[at] = replace(call, think_ns=call.think_ns + more, data_ns=call.data_ns + more)
    graph.calls[rank] = changed
