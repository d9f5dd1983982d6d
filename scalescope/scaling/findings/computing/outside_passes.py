"""What the loop's own thread computes outside the passes, on CPUs: before them, and behind the update; on all ranks.

Before the forward pass it makes something of a batch. A loader's workers could make it beside the step before, as far
as they find cores. Operators do not tell that it is a batch that they prepare: what a network without gradients
computes there looks alike, if it has few layers. Whichever it is, a step has it, and is longer by at least that:
without it two jobs' steps were shorter by 1.2 to 2 times as much.

Behind the update it looks at what the step made: metrics, most likely, which no training needs in each step.
"""

from collections.abc import Collection, Iterator

from scalescope.scaling.finding.figures import LOOKED_AT, PREPARING
from scalescope.scaling.finding.finding import Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.computing.tally import Tally, takes_much, tally_of
from scalescope.scaling.findings.hosts.own_lines import line_of_activities
from scalescope.scaling.rank.records.element_reads import OF_A_LOOP
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal

_PREPARING, _METRICS = (Removal("preparing"),), (Removal("metrics"),)


def batch_preparation(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where all ranks' loops compute between the batch and the forward pass, for much of the step."""
    if (tally := _much(scene, scene.replayer.graph.preparing, _PREPARING)) is not None:
        yield Candidate(
            code="batch_preparation",
            removals=_PREPARING,
            evidence=tally.rows(PREPARING, "operator"),
            remedy=Remedy(cure="prepare_ahead", line=line_of_activities(scene, scene.replayer.graph.preparing)),
            at_least=True,
        )


def metrics(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where all ranks' loops compute behind the update, for much of the step."""
    graph = scene.replayer.graph
    taken = [graph.activities[at] for at in graph.metrics]
    reading, whole = (
        sum(node.traced_end - node.traced_start for node in nodes)
        for nodes in ([node for node in taken if node.name in OF_A_LOOP], taken)
    )
    if 2 * reading > whole:
        return  # values that are read one by one, which is told as that
    if (tally := _much(scene, graph.metrics, _METRICS)) is not None:
        yield Candidate(
            code="metrics",
            removals=_METRICS,
            evidence=tally.rows(LOOKED_AT, "operator"),
            remedy=Remedy(cure="measure_rarely", line=line_of_activities(scene, graph.metrics)),
        )


def _much(scene: Scene, activities: Collection[int], removals: tuple[Removal, ...]) -> Tally | None:
    """Return what activities take, where all ranks have as much of them, in most of the steps, and it is much."""
    tally = tally_of(scene, activities)
    return tally if tally.is_alike() and takes_much(scene, Change(without=removals)) else None
