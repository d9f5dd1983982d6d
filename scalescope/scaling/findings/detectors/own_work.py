"""What one rank does and the others do not: kernels of its own, or launches of theirs beside their program."""

from collections.abc import Iterator

from scalescope.scaling.finding import Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.detectors.extra_launches import besides
from scalescope.scaling.replay.ranks.extra import BEYOND
from scalescope.scaling.replay.removal import Removal

#: A kernel that one rank alone runs in every step is nobody's chance: it is told where the step feels any of it.
_LEAST_SHARE = 0.001


def own_work(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each rank that runs work of its own, step after step."""
    for rank in scene.side.ranks if len(scene.side.ranks) > 1 else ():
        extra = besides(scene, rank)
        if extra is not None and not extra.is_copying:
            yield Candidate(
                code="own_work",
                rank=rank,
                removals=tuple(Removal(what, rank) for what in (BEYOND if extra.known else BEYOND[:1])),
                evidence=(*extra.evidence, *extra.counted),
                remedy=Remedy(cure="look_at_rank"),
                least_share=_LEAST_SHARE,
            )
