"""Exchanges taken out of a step: of gradients, with what DDP does for them on the device beside moving data, and of
Python objects, with what hosts make of these.
"""

from collections.abc import Collection, Sequence, Set
from itertools import pairwise

import msgspec
import numpy as np
from msgspec.structs import replace

from scalescope.records.operations import DISPATCHED
from scalescope.scaling.evidence.host_calls import OBJECT_COLLECTIVES, object_collectives
from scalescope.scaling.rank.timeline import COMMUNICATION
from scalescope.scaling.replay.graph import Graph, HostCall

#: Another collective, which no exchange of objects has within.
_ANOTHER = "c10d::"


class ObjectExchange(msgspec.Struct, frozen=True):
    """A collective of Python objects on one rank whose host computes: the calls that it is made of, and what those
    exchange.
    """

    name: str  # torch's own, of OBJECT_COLLECTIVES
    calls: tuple[int, ...]  # indices of the rank's calls
    transfers: tuple[int, ...]


def object_exchanges(graph: Graph, rank: int) -> list[ObjectExchange]:
    """Return a rank's collectives of objects, in order: its host's operators tell them, whatever thread runs them."""
    calls = graph.calls[rank]
    by_thread: dict[int, list[int]] = {}
    for at, call in enumerate(calls):
        if call.launches >= 0:
            by_thread.setdefault(call.thread, []).append(at)
    found = []
    for rows in by_thread.values():
        names = [_operator(graph, calls[at].launches) for at in rows]
        if OBJECT_COLLECTIVES.keys().isdisjoint(names):
            continue
        known = {name: at for at, name in enumerate(dict.fromkeys(names))}
        place = np.arange(len(rows), dtype=np.int64)
        ids = np.array([known[name] for name in names], np.int32)
        for first, last, what in object_collectives(place, place, ids, list(known)):
            own = tuple(rows[first : last + 1])
            members = (graph.activities[calls[at].launches].collective for at in own)
            found.append(ObjectExchange(what, own, tuple(one for one in members if one >= 0)))
    return sorted(found, key=lambda one: one.calls)


def _operator(graph: Graph, activity: int) -> str:
    node = graph.activities[activity]
    if node.collective < 0:
        return node.name if node.kind != COMMUNICATION else _ANOTHER
    return DISPATCHED.get(graph.transfers[node.collective].operation, _ANOTHER)


def free_objects(graph: Graph) -> None:
    """Take all collectives of objects out, in place: what hosts pickle before them, what they exchange, what they read
    of it.
    """
    gone: set[int] = set()
    for rank in graph.ranks:
        calls = graph.calls[rank]
        for exchange in object_exchanges(graph, rank):
            gone.update(exchange.transfers)
            for at in range(exchange.calls[0], exchange.calls[-1] + 1):
                if calls[at].thread == calls[exchange.calls[0]].thread:
                    calls[at] = replace(calls[at], think_ns=calls[at].data_ns, duration_ns=0.0)
            for at in exchange.calls:
                graph.work_ns[calls[at].launches] = 0.0
    free_exchanges(graph, [tuple(gone)])


def free_exchanges(graph: Graph, rows: Sequence[Sequence[int]]) -> None:
    """Take transfers out in place, with what hosts do to hand them over; nobody waits for anybody there.

    They stay in their streams as what takes no time: what waited for them waits for what they came behind.
    """
    gone = {at for row in rows for one in row for at in graph.transfers[one].members.values()}
    free_members(graph, gone)


def free_members(graph: Graph, gone: Collection[int]) -> None:
    """Let activities of collectives take no time on their ranks' devices, nor their hosts' handing them over."""
    for at in gone:
        graph.work_ns[at] = 0.0
        graph.activities[at] = replace(graph.activities[at], collective=-1, dispatch_ns=0.0, late_ns=0.0, skew_ns=0.0)
    members = np.array(sorted(gone), np.int64)
    for rank in graph.ranks:
        calls = graph.calls[rank]
        for at in np.flatnonzero(np.isin(graph.call_columns(rank)["hands_over"], members)).tolist():
            calls[at] = replace(calls[at], think_ns=calls[at].data_ns, duration_ns=0.0)


def free_bucket_copies(graph: Graph, rows: Sequence[Sequence[int]]) -> None:
    """Take out what copies gradients into the buckets of passes, or scales them there, and copies them back.

    What is launched right before a bucket is handed over is the last gradient that came into it, and what has its name
    in the same backward pass are the others. What the pass's thread launches behind its last bucket, one like the
    other and no more of them, brings them back.
    """
    for rank in graph.ranks:
        place = {call.launches: at for at, call in enumerate(graph.calls[rank]) if call.launches >= 0}
        for row in rows:
            members = [graph.transfers[one].members[rank] for one in row]
            handed = sorted(place[at] for at in members if at in place)
            for at in _of_pass(graph, graph.calls[rank], handed, set(members)) if handed else ():
                graph.work_ns[at] = 0.0


def _of_pass(graph: Graph, calls: Sequence[HostCall], handed: Sequence[int], members: Set[int]) -> list[int]:
    """Return what a backward pass launches for its buckets, which these calls hand over, beside collectives."""
    thread, step = calls[handed[0]].thread, graph.activities[calls[handed[0]].launches].step
    own: list[int] = []  # what its thread launches since the pass before
    for call in reversed(calls[: handed[0]]):
        if call.launches >= 0 and call.thread == thread:
            node = graph.activities[call.launches]
            if node.step != step or node.kind == COMMUNICATION:
                break
            own.append(call.launches)
    own.reverse()
    own += [one.launches for one in calls[handed[0] : handed[-1] + 1] if one.launches >= 0 and one.thread == thread]
    last = [one for one, following in pairwise(own) if following in members and one not in members]
    names = {graph.activities[one].name for one in last}
    into = [one for one in own if one not in members and graph.activities[one].name in names]
    return [*into, *_brought_back(graph, calls[handed[-1] + 1 :], thread, step)[: len(into)]]


def _brought_back(graph: Graph, calls: Sequence[HostCall], thread: int, step: int) -> list[int]:
    found: list[int] = []
    for call in calls:
        if call.launches < 0:
            continue
        node = graph.activities[call.launches]
        other = call.thread != thread or node.step != step or node.kind == COMMUNICATION
        if other or (found and node.name != graph.activities[found[0]].name):
            break
        found.append(call.launches)
    return found
