"""What the loop's own thread makes of a batch before the forward pass, on CPUs: of all ranks alike.

A loader's workers could make it beside the step before, as far as they find cores. Operators do not tell that it is a
batch that they prepare: what a network without gradients computes there looks alike, if it has few layers. Whichever it
is, a step has it, and is longer by at least that: without it two jobs' steps were shorter by 1.2 to 2 times as much.
"""

from collections.abc import Iterator

from scalescope.scaling.finding.figures import PREPARING
from scalescope.scaling.finding.finding import Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene, gained_ms
from scalescope.scaling.findings.computing.tally import Tally
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal

#: From this share of the step on it is told, by itself.
_MUCH = 0.03


def batch_preparation(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where all ranks' loops compute between the batch and the forward pass, for much of the step."""
    graph = scene.replayer.graph
    tally = Tally(scene.side.ranks, set(graph.step_numbers))
    for node in (graph.activities[at] for at in graph.preparing):
        tally.add(node.name, node)
    if not tally.is_alike():
        return
    removals = (Removal("preparing"),)
    if gained_ms(scene.replayer, Change(without=removals)) < _MUCH * scene.step_ms:
        return  # what is not told takes nothing from other causes either
    yield Candidate(
        code="batch_preparation",
        removals=removals,
        evidence=tally.rows(PREPARING, "operator"),
        remedy=Remedy(cure="prepare_ahead"),
        at_least=True,
    )
