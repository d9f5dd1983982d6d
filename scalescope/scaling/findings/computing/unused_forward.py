"""What the forward pass computes with gradients that no backward pass asks for: of all ranks alike.

A tower whose outputs go nowhere, or one whose outputs are looked at, or are a fixed target. It is work that the job was
given, and no fault of a rank. Without it the step is shorter by what it takes at most, since some may be wanted.
"""

from collections.abc import Iterator

from scalescope.scaling.finding.figures import UNUSED_FORWARD
from scalescope.scaling.finding.finding import Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.computing.tally import takes_much, tally_of
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal


def unused_forward(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where all ranks' forward passes compute what leads to no gradient, for much of the step."""
    tally, removals = tally_of(scene, scene.replayer.graph.unused), (Removal("unused"),)
    if not tally.is_of_all() or not takes_much(scene, Change(without=removals)):
        return
    yield Candidate(
        code="unused_forward",
        removals=removals,
        evidence=tally.rows(UNUSED_FORWARD, "operator" if scene.replayer.on_cpu else "activity"),
        remedy=Remedy(cure="drop_unused"),
        at_most=True,
    )
