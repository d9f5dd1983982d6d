"""Compute that is slower because collectives run beside it, by much more than hiding them costs anyway."""

from collections.abc import Iterator

from scalescope.scaling.finding.figures import SLOWER_BESIDE
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.replay.change import Change

#: Collectives that are hidden slow the compute that hides them: up to this share of the step is what hiding costs.
_USUAL = 0.08


def contention(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where compute would be so much faster without anything beside it."""
    if scene.may_wait_unseen:
        return  # collectives that wait for a late rank slow compute as well: it would be that rank's doing
    slower = scene.slower_beside_ms
    if slower >= _USUAL * scene.step_ms:
        yield Candidate(
            code="contention",
            change=Change(no_inflation=True),
            evidence=(EvidenceRow(kind="figure", name=SLOWER_BESIDE, ms=slower),),
            remedy=Remedy(cure="fewer_channels"),
            at_most=True,
            least_share=_USUAL / 2,
        )
