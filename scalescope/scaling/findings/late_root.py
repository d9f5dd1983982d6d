"""The root of a broadcast that comes late, for nothing that was found on it.

Others wait for a root that is late because it computes more, or because its host sleeps; that is then the finding.
Where nothing holds the root up, its own order of things does: it broadcasts after what it could have left for later.
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence

from scalescope.records.operations import FROM_ROOT
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy, ranks_of
from scalescope.scaling.findings.candidate import MOST_STEPS, WORTH_SAYING, Scene
from scalescope.scaling.findings.shares import bounded_steps

#: A step as run that differs by more from the one as profiled is not the one in which the waits were measured.
_UNLIKE = 0.05
#: Of an exposed wait, so much at least is gained where nobody waits any more.
_AT_LEAST = 0.5


def late_root(scene: Scene, found: Sequence[Finding]) -> list[Finding]:
    """Return a finding for each rank that others wait for as a root, and that no other finding names."""
    profiled = scene.replayer.replay.traced_ms
    if scene.replayer.on_cpu or abs(scene.step_ms - profiled) > _UNLIKE * profiled:
        return []
    named = {rank for one in found for rank in ranks_of(one)}
    exposed = _exposed_wait_ms(scene)
    findings = []
    for rank, by_step in sorted(_waits_ms(scene).items()):
        lost = [min(by_step.get(step, 0.0), exposed[step]) for step in exposed]
        least = WORTH_SAYING * scene.step_ms
        if rank in named or sum(ms >= least for ms in lost) < MOST_STEPS * len(lost):
            continue
        ms = statistics.fmean(lost)
        findings.append(
            Finding(
                code="late_root",
                rank=rank,
                ms=ms,
                low_ms=_AT_LEAST * ms,
                high_ms=max(lost),
                fraction=ms / scene.step_ms,
                evidence=(EvidenceRow(kind="figure", name="waited_for_root", ms=ms),),
                remedy=Remedy(cure="free_root"),
                backed="measured",
            )
        )
    return findings


def _waits_ms(scene: Scene) -> dict[int, dict[int, float]]:
    """Return by the rank that comes last, and by step, what the other ranks wait for it in rooted collectives, mean."""
    waits: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for one in scene.analysis.collectives:
        others = [us for rank, us in one.wait_us.items() if rank != one.last_rank]
        if one.operation in FROM_ROOT and one.last_rank is not None and one.step is not None and others:
            waits[one.last_rank][one.step] += statistics.fmean(others) / 1e3
    return waits


def _exposed_wait_ms(scene: Scene) -> dict[int, float]:
    """Return by step the longest exposed wait of a rank."""
    found: dict[int, float] = {}
    for step in bounded_steps(scene.analysis):
        found[step.step] = max(found.get(step.step, 0.0), step.exposed_wait_ms)
    return found
