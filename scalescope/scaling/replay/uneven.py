"""What the same launch takes longer in some steps than in its shortest one: what makes steps uneven, taken out.

Launches are the same by name and ordinal in the step, on all ranks. Those that hardly vary stay as they are: the
shortest of many values that differ by chance would be too short for all of them.
"""

from collections.abc import Iterator

from scalescope.scaling.rank.timeline import COMMUNICATION
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.replay.ranks.side_by_side import SideBySide

_Key = tuple[str, int]


def uneven_launches(graph: Graph, side: SideBySide, least_ns: float) -> dict[str, float]:
    """Return by name what uneven launches take beyond their shortest, ns a rank and step."""
    found: dict[str, float] = {}
    shortest = _shortest(graph, side, least_ns)
    for key, at in _launches(graph, side):
        if key in shortest:
            found[key[0]] = found.get(key[0], 0.0) + graph.work_ns[at] - shortest[key]
    count = max(1, len(side.launches))
    return {name: ns / count for name, ns in found.items()}


def even_out_steps(graph: Graph, side: SideBySide, least_ns: float) -> None:
    """Let launches that vary by so much between ranks and steps take what the shortest of them does, in place."""
    shortest = _shortest(graph, side, least_ns)
    for key, at in list(_launches(graph, side)):
        if key in shortest:
            graph.work_ns[at] = min(graph.work_ns[at], shortest[key])


def _shortest(graph: Graph, side: SideBySide, least_ns: float) -> dict[_Key, float]:
    times: dict[_Key, list[float]] = {}
    for key, at in _launches(graph, side):
        times.setdefault(key, []).append(graph.work_ns[at])
    return {key: min(some) for key, some in times.items() if max(some) - min(some) >= least_ns}


def _launches(graph: Graph, side: SideBySide) -> Iterator[tuple[_Key, int]]:
    for (_, step), own in side.launches.items():
        ordinals: dict[str, int] = {}
        for at in own.activity if step in side.steps else ():
            node = graph.activities[at]
            if node.kind != COMMUNICATION:
                ordinals[node.name] = ordinal = ordinals.get(node.name, -1) + 1
                yield (node.name, ordinal), at
