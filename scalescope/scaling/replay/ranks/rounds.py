"""Several collectives made one: what they carry travels with the last of them, and their hosts hand one over."""

from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.replay.graph import Graph, Transfer
from scalescope.scaling.replay.ranks.exchanges import free_members


def merge_rounds(graph: Graph, rounds: Sequence[Sequence[int]]) -> None:
    """Let each row of transfers be its last one, in place; its members wait for each other there alone.

    The others stay in their streams as what takes no time, and what their hosts do to hand them over takes none either.
    """
    rate = max((_rate(one) for one in graph.transfers), default=0.0)
    gone: set[int] = set()
    for row in rounds:
        *others, last = row
        graph.transfers[last] = replace(graph.transfers[last], work_ns=_merged_ns(graph, row, rate))
        for one in others:
            gone |= set(graph.transfers[one].members.values())
    free_members(graph, gone)


def _merged_ns(graph: Graph, row: Sequence[int], rate: float) -> float:
    """Return what moving the data of all takes at once: no more than one by one, and each byte at the best rate."""
    works = [graph.transfers[one].work_ns for one in row]
    carried = sum(graph.transfers[one].bytes or 0 for one in row)
    largest = max(row, key=lambda one: graph.transfers[one].work_ns)
    rest = carried - (graph.transfers[largest].bytes or 0)
    return min(sum(works), max(works) + (rest / rate if rate > 0 else 0.0))


def _rate(one: Transfer) -> float:
    return (one.bytes or 0) / one.work_ns if one.work_ns > 0 else 0.0
