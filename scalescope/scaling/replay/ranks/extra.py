"""What one rank runs beyond the others' program, and what that holds up beside it."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from scalescope.scaling.rank.timeline import COMMUNICATION
from scalescope.scaling.replay.graph import Activity, Graph
from scalescope.scaling.replay.ranks.side_by_side import SideBySide
from scalescope.scaling.trace.intervals import Intervals, covered_before, union

#: Activities that the other ranks do not run at all, and those that they run less often.
Beyond = Literal["own", "more"]
BEYOND: tuple[Beyond, ...] = ("own", "more")


def steps_of(side: SideBySide) -> list[int]:
    """Return the steps, and what comes before the one that bounds the last of them begins."""
    return side.steps if side.edge is None else [*side.steps, side.edge]


def extra_rows(graph: Graph, side: SideBySide, rank: int, step: int, what: Beyond) -> Iterator[int]:
    """Yield the launches of a rank's step that the others have no place for: `own` by name, or run `more` often.

    But for conversions to a precision in which this rank alone computes: these are of what it computes so.
    """
    own = side.launches[rank, step]
    known = side.names[step]
    for row in np.flatnonzero((own.stands_in < 0) & ~side.is_dearer(rank, step)).tolist():
        node = graph.activities[own.activity[row]]
        if node.kind != COMMUNICATION and (node.name in known) == (what == "more"):
            yield row


def held_up_by(graph: Graph, side: SideBySide, rank: int, whats: Sequence[Beyond] = BEYOND) -> set[int]:
    """Return a rank's activities of other streams that run while its extra launches do: these hold them up.

    Streams go on by themselves: what a step launches on one may run beside another step's work, and what was launched
    there before the steps beside theirs.
    """
    extra = [
        side.launches[rank, step].activity[row]
        for step in steps_of(side)
        for what in whats
        for row in extra_rows(graph, side, rank, step, what)
    ]
    streams = {graph.activities[at].stream for at in extra}
    if not streams:
        return set()
    rest = [
        at
        for step in steps_of(side)
        for at in side.launches[rank, step].activity
        if graph.activities[at].kind != COMMUNICATION and graph.activities[at].stream not in streams
    ]
    names = {graph.activities[at].name for at in extra}
    nodes = [graph.activities[at] for stream in graph.order[rank] for at in stream]
    spans = [node for node in nodes if node.stream in streams and node.name in names]
    own = union(Intervals(*(_times(spans, name) for name in ("traced_start", "traced_end"))))
    starts, ends = (_times([graph.activities[at] for at in rest], name) for name in ("traced_start", "traced_end"))
    beside = covered_before(own, ends) - covered_before(own, starts)
    return {at for at, ns in zip(rest, beside.tolist(), strict=True) if ns > 0}


def _times(nodes: Sequence[Activity], name: str) -> npt.NDArray[np.int64]:
    return np.array([getattr(node, name) for node in nodes], np.int64)
