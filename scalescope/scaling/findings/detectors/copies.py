"""Copies that run while nothing computes: of all ranks a bound, since what takes their place is not known."""

from collections.abc import Iterator, Sequence

from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import WORTH_A_LOOK, Candidate, Scene
from scalescope.scaling.findings.detectors.extra_launches import extra_launches
from scalescope.scaling.rank.timeline import COPY
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.replay.ranks.copying import moves
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.trace.intervals import Intervals, difference, intervals, length, union

#: Every step copies a little.
_LEAST_SHARE = 0.02


def copies(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each rank that alone copies so, and one for what all of them have exposed."""
    _, ranks = step_as_run(scene.analysis)
    exposed = {one.rank: one.part_ms("exposed_memory") for one in ranks}
    moving = {rank: ms * _moving_share(scene.replayer.graph, rank) for rank, ms in exposed.items()}
    alone = [rank for rank in scene.side.ranks if len(scene.side.ranks) > 1 and _copies_alone(scene, rank)]
    for rank in alone:
        yield _candidate(scene, exposed.get(rank, 0.0), rank)
    others = [ms for rank, ms in moving.items() if rank not in alone]
    if others and scene.worth_a_look(mean := sum(others) / len(others)):
        yield _candidate(scene, mean, None)


def _copies_alone(scene: Scene, rank: int) -> bool:
    # data that is copied to the host is copies, and their waits go with them; a figure that is read takes no time
    extra = extra_launches(scene, rank, ("own",), reads=True)
    return extra.is_copying and extra.in_most_steps(WORTH_A_LOOK * scene.step_ms)


def _moving_share(graph: Graph, rank: int) -> float:
    """Return how much of a rank's copies and fills that nothing hides moves from one memory to another, as traced.

    What stays on a device is the compute's own doing: clones, and zeros to add to.
    """
    own = [at for stream in graph.order.get(rank, ()) for at in stream if graph.activities[at].step >= 0]
    copies = [at for at in own if graph.activities[at].kind == COPY]
    beside = union(_as_traced(graph, [at for at in own if graph.activities[at].kind != COPY]))
    whole = length(difference(union(_as_traced(graph, copies)), beside))
    moved = union(_as_traced(graph, [at for at in copies if moves(graph, at)]))
    return length(difference(moved, beside)) / whole if whole else 0.0


def _as_traced(graph: Graph, rows: Sequence[int]) -> Intervals:
    nodes = [graph.activities[at] for at in rows]
    return intervals([(node.traced_start, node.traced_end) for node in nodes])


def _candidate(scene: Scene, exposed: float, rank: int | None) -> Candidate:
    return Candidate(
        code="copies",
        rank=rank,
        removals=(Removal("copies", rank),),
        evidence=(EvidenceRow(kind="figure", name="exposed_copies", ms=exposed, share=exposed / scene.step_ms),),
        remedy=Remedy(cure="copy_ahead"),
        at_most=rank is None,  # the others do without what one rank copies alone
        least_share=_LEAST_SHARE,
    )
