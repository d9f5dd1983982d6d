"""Steps that differ from each other by more than what was found explains."""

import statistics
from collections.abc import Sequence

from scalescope.scaling.finding import EvidenceRow, Finding, Remedy, weight
from scalescope.scaling.findings.candidate import Scene

#: The steps' standard deviation over their mean, from which on they are unsteady.
_SPREAD = 0.06
#: Findings that cost so much of it explain it.
_EXPLAINED = 0.5
#: With a few steps, what they cost more than the shortest one is known within this.
_KNOWN_WITHIN = 0.5


def unsteady(scene: Scene, found: Sequence[Finding]) -> list[Finding]:
    """Return a finding where steps differ: by how much the mean step is longer than the shortest."""
    by_rank = list(scene.replayer.base.values())
    count = min((len(steps) for steps in by_rank), default=0)
    if count < 3 or scene.replayer.on_cpu:
        return []  # ranks that share cores never run evenly
    steps = [statistics.fmean(own[at] for own in by_rank) / 1e6 for at in range(count)]
    mean = statistics.fmean(steps)
    spread = statistics.pstdev(steps) / mean if mean else 0.0
    lost = mean - min(steps)
    if spread < _SPREAD or any(weight(one) >= _EXPLAINED * lost for one in found):
        return []
    return [
        Finding(
            code="unsteady",
            ms=lost,
            low_ms=(1 - _KNOWN_WITHIN) * lost,
            high_ms=(1 + _KNOWN_WITHIN) * lost,
            fraction=lost / scene.step_ms,
            evidence=(EvidenceRow(kind="figure", name="step_spread", share=spread),),
            remedy=Remedy(cure="measure_again"),
            backed="measured",
        )
    ]
