"""Copies that run while nothing computes: of all ranks a bound, since what takes their place is not known."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import WORTH_A_LOOK, Candidate, Scene
from scalescope.scaling.findings.computing.extra_launches import extra_launches
from scalescope.scaling.findings.hosts.own_lines import line_of_activities
from scalescope.scaling.rank.timeline import COPY
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.replay.ranks.copying import clones, moves
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.trace.intervals import Intervals, difference, intervals, length, union

#: Every step copies a little.
_LEAST_SHARE = 0.02
#: What is copied within a device is mostly the compute's own doing, as zeros are that it adds to; what takes so much of
#: a step is there by itself (weights that are kept, states that are put back), and can be left out.
_LEAST_CLONES = 0.06


def copies(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each rank that alone copies so, and one for what all of them have exposed."""
    _, ranks = step_as_run(scene.analysis)
    exposed = {one.rank: one.part_ms("exposed_memory") for one in ranks}
    alone = [rank for rank in scene.side.ranks if len(scene.side.ranks) > 1 and _copies_alone(scene, rank)]
    for rank in alone:
        yield _candidate(scene, exposed.get(rank, 0.0), rank)
    others = {rank: ms for rank, ms in exposed.items() if rank not in alone}
    if not others:
        return
    moved = _mean_ms(scene, others, moves)
    cloned = _mean_ms(scene, others, clones)
    cloned = cloned if cloned >= _LEAST_CLONES * scene.step_ms else 0.0
    if scene.worth_a_look(moved + cloned):
        yield _candidate(scene, moved + cloned, None, clones=cloned > 0)


def _copies_alone(scene: Scene, rank: int) -> bool:
    # data that is copied to the host is copies, and their waits go with them; a figure that is read takes no time
    extra = extra_launches(scene, rank, ("own",), reads=True)
    return extra.is_copying and extra.in_most_steps(WORTH_A_LOOK * scene.step_ms)


def _mean_ms(scene: Scene, exposed: Mapping[int, float], which: Callable[[Graph, int], bool]) -> float:
    """Return what copies of a sort have of copies and fills that nothing hides, `exposed` by rank, in the mean rank."""
    return sum(ms * _share(scene.replayer.graph, rank, which) for rank, ms in exposed.items()) / len(exposed)


def _share(graph: Graph, rank: int, which: Callable[[Graph, int], bool]) -> float:
    """Return how much of a rank's copies and fills that nothing hides are copies of a sort, as traced."""
    own = [at for stream in graph.order.get(rank, ()) for at in stream if graph.activities[at].step >= 0]
    copies = [at for at in own if graph.activities[at].kind == COPY]
    beside = union(_as_traced(graph, [at for at in own if graph.activities[at].kind != COPY]))
    whole = length(difference(union(_as_traced(graph, copies)), beside))
    those = union(_as_traced(graph, [at for at in copies if which(graph, at)]))
    return length(difference(those, beside)) / whole if whole else 0.0


def _as_traced(graph: Graph, rows: Sequence[int]) -> Intervals:
    nodes = [graph.activities[at] for at in rows]
    return intervals([(node.traced_start, node.traced_end) for node in nodes])


def _line(scene: Scene, rank: int | None, *, clones: bool) -> str | None:
    """Return the function of the script that makes most of the copies, of one rank or of all."""
    graph = scene.replayer.graph
    own = (at for one in graph.ranks if rank in (None, one) for stream in graph.order.get(one, ()) for at in stream)
    copied = (at for at in own if graph.activities[at].step >= 0 and graph.activities[at].kind == COPY)
    return line_of_activities(scene, (at for at in copied if clones or moves(graph, at)))


def _candidate(scene: Scene, exposed: float, rank: int | None, *, clones: bool = False) -> Candidate:
    return Candidate(
        code="copies",
        rank=rank,
        removals=(Removal("copies", rank), *([Removal("clones")] if clones else [])),
        evidence=(EvidenceRow(kind="figure", name="exposed_copies", ms=exposed, share=exposed / scene.step_ms),),
        remedy=Remedy(cure="copy_ahead", line=_line(scene, rank, clones=clones)),
        at_most=rank is None,  # the others do without what one rank copies alone
        least_share=_LEAST_SHARE,
    )
