"""The same kernels, more often than on the other ranks: more samples, more passes, an uneven split."""

from collections.abc import Iterator

from scalescope.scaling.finding import Remedy
from scalescope.scaling.findings.candidate import WORTH_A_LOOK, Candidate, Scene
from scalescope.scaling.findings.detectors.extra_launches import extra_launches
from scalescope.scaling.replay.removal import Removal


def more_work(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each rank that runs the common kernels more often, step after step."""
    for rank in scene.side.ranks if len(scene.side.ranks) > 1 else ():
        extra = extra_launches(scene, rank, ("more",))
        if (
            extra.in_most_steps(WORTH_A_LOOK * scene.step_ms)
            and (extra.is_of_the_program or not extra.counted)  # else it is something else
        ):
            yield Candidate(
                code="more_work",
                rank=rank,
                removals=(Removal("more", rank),),
                evidence=(*extra.evidence, *extra.counted),
                remedy=Remedy(cure="even_out"),
            )
