"""A kernel that one rank runs and the others do not."""

from collections.abc import Iterator

from scalescope.scaling.finding import Remedy
from scalescope.scaling.findings.candidate import WORTH_A_LOOK, Candidate, Scene
from scalescope.scaling.findings.detectors.extra_launches import extra_launches
from scalescope.scaling.replay.removal import Removal

#: A kernel that one rank alone runs in every step is nobody's chance: it is told where the step feels any of it.
_LEAST_SHARE = 0.001


def own_work(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each rank that runs work of its own, step after step."""
    for rank in scene.side.ranks if len(scene.side.ranks) > 1 else ():
        extra = extra_launches(scene, rank, "own")
        if extra.in_most_steps(WORTH_A_LOOK * scene.step_ms) and not extra.is_copying:
            yield Candidate(
                code="own_work",
                rank=rank,
                removals=(Removal("own", rank),),
                evidence=extra.evidence,
                remedy=Remedy(cure="look_at_rank"),
                least_share=_LEAST_SHARE,
            )
