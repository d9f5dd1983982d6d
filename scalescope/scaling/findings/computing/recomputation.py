"""What the backward pass runs of the forward pass once more, so that activations need not be kept: of all ranks alike.

It is a trade of time for memory that the job was given, and no fault. A rank that alone does so has more work than the
others, and is told by that.
"""

from collections.abc import Iterator

from scalescope.scaling.finding.figures import RECOMPUTED
from scalescope.scaling.finding.finding import Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene, gained_ms
from scalescope.scaling.findings.computing.tally import Tally
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.trace.kernel_kinds import kind_of

#: From this share of the step on it is told, by itself.
_MUCH = 0.03
#: Where devices wait for launches for such a share of the step, what else its host does for it counts: hooks for each
#: tensor that is saved, states of random numbers. Of 15 ms of a U-Net's steps that hosts bind 3.6 were told.
_LAUNCHES = 0.1


def recomputation(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where all ranks run parts of the forward pass again, for much of the step."""
    graph, on_cpu = scene.replayer.graph, scene.replayer.on_cpu
    tally = Tally(scene.side.ranks, set(graph.step_numbers))
    for node in (graph.activities[at] for at in graph.recomputed):
        tally.add(node.name if on_cpu else kind_of(node.name), node)
    if not tally.is_of_all():
        return
    change = Change(without=(Removal("recomputed"),))
    if gained_ms(scene.replayer, change) < _MUCH * scene.step_ms:
        return
    yield Candidate(
        code="recomputation",
        change=change,  # in the step without causes, which are priced in the step that the job was given
        evidence=tally.rows(RECOMPUTED, "operator" if on_cpu else "activity"),
        at_least=not on_cpu and scene.share_ms("idle_launch") >= _LAUNCHES * scene.step_ms,
        remedy=Remedy(cure="recompute_less", overrides=scene.overrides("recompute=false")),
    )
