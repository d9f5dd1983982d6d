"""Copies and fills that run while nothing computes: a bound, since what takes their place is not known."""

from collections.abc import Iterator

from scalescope.scaling.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.replay.removal import Removal

#: Every step fills and copies a little.
_LEAST_SHARE = 0.02


def copies(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where copies are exposed."""
    exposed = scene.share_ms("exposed_memory")
    if scene.worth_a_look(exposed):
        yield Candidate(
            code="copies",
            removals=(Removal("copies"),),
            evidence=(EvidenceRow(kind="figure", name="exposed_copies", ms=exposed, share=exposed / scene.step_ms),),
            remedy=Remedy(cure="copy_ahead"),
            at_most=True,
            least_share=_LEAST_SHARE,
        )
