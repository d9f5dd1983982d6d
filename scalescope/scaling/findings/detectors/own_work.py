"""What one rank does and the others do not: kernels of its own, or launches of theirs beside their program.

torch's anomaly detection looks for NaN behind each node of the backward pass, and keeps where in the source each node
comes from, which makes all operators of the forward pass longer: the one is seen, and the other is its doing as well.

So are longer kernels on a device that runs what a rank alone does on another stream: those beside it have the fewer
multiprocessors, and all of them the lower clocks, since the device draws more power.
"""

from collections.abc import Iterator

from scalescope.scaling.finding.codes import Cure
from scalescope.scaling.finding.figures import ANOMALY, CONVERTING
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import WORTH_A_LOOK, Candidate, Scene
from scalescope.scaling.findings.computing.extra_launches import Extra, besides, extra_launches
from scalescope.scaling.findings.detectors.longer_loops import rounds_of
from scalescope.scaling.findings.hosts.own_lines import line_of_activities
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.ranks.extra import BEYOND, held_up_by
from scalescope.scaling.replay.removal import Removal, What

#: What looks for NaN; behind so many of the backward pass's nodes that compute, and so many a step, it is torch itself.
_LOOKS, _NODE = "aten::isnan", "Backward"
_BEHIND, _MANY = 0.5, 10
#: A kernel that one rank alone runs in every step is nobody's chance: it is told where the step feels any of it.
_LEAST_SHARE = 0.001


def own_work(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each rank that runs work of its own, step after step."""
    for rank in scene.side.ranks if len(scene.side.ranks) > 1 else ():
        loops = rounds_of(scene, rank) is not None  # what these launch is no work of another kind
        extra = _by_itself(scene, rank) if loops else besides(scene, rank)
        if extra is not None and not extra.is_copying:
            looks = looks_for_nan(scene, rank)
            slows = bool(looks) or computes_beside(scene, rank)
            whats: tuple[What, ...] = (
                *(BEYOND if extra.known and not loops else BEYOND[:1]),
                *(("slow",) if slows else ()),
            )
            anomaly = (EvidenceRow(kind="figure", name=ANOMALY, calls=looks),) if looks else ()
            converted_ms = extra.converting * extra.mean_ms
            converts = (
                (EvidenceRow(kind="figure", name=CONVERTING, ms=converted_ms),) if extra.is_of_a_precision else ()
            )
            instead: Cure = "same_precision" if converts else "look_at_rank"
            yield Candidate(
                code="own_work",
                rank=rank,
                removals=tuple(Removal(what, rank) for what in whats),
                in_each_ms=tuple(extra.ms) if extra.counted else (),
                evidence=(*extra.evidence, *extra.counted, *anomaly, *converts),
                remedy=Remedy(
                    cure="no_anomaly_detection" if looks else instead, line=line_of_activities(scene, extra.activities)
                ),
                least_share=_LEAST_SHARE,
            )


def _by_itself(scene: Scene, rank: int) -> Extra | None:
    """Return what a rank runs by operators that the others do not run at all; None where nothing."""
    own = extra_launches(scene, rank, BEYOND[:1])
    return own if own.in_most_steps(WORTH_A_LOOK * scene.step_ms) else None


def computes_beside(scene: Scene, rank: int) -> bool:
    """Tell whether a rank alone computes something on a stream beside that of the program that all have."""
    extra = besides(scene, rank) if not scene.replayer.on_cpu else None
    if extra is None or extra.is_copying:
        return False
    graph = scene.replayer.graph
    held_up = held_up_by(graph, scene.side, rank, BEYOND if extra.known else BEYOND[:1])
    return any(graph.activities[at].kind == COMPUTE for at in held_up)


def looks_for_nan(scene: Scene, rank: int) -> float:
    """Return how often a step a rank alone looks for NaN, if behind most nodes of its backward pass; 0 else."""
    side, activities = scene.side, scene.replayer.graph.activities
    found = []
    for step in side.steps:
        own = side.launches[rank, step]
        names = [activities[at].name for at in own.activity]
        nodes = sum(_NODE in name for name in names)
        looks = sum(name == _LOOKS and place < 0 for name, place in zip(names, own.stands_in.tolist(), strict=True))
        found.append(looks if looks >= max(_BEHIND * nodes, _MANY) else 0)
    return sum(found) / len(found) if found and all(found) else 0.0
