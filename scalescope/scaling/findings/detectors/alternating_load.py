"""Ranks that take turns in having more to do: none is late step after step, and yet every step waits for one."""

import statistics
from collections.abc import Iterator

from scalescope.scaling.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import WORTH_A_LOOK, Candidate, Scene
from scalescope.scaling.findings.detectors.extra_launches import Extra, extra_launches
from scalescope.scaling.replay.removal import Removal, What

#: Loads that alternate are alike; where they differ by more (standard deviation over mean), they come at random.
_ALIKE = 0.35


def alternating_load(scene: Scene) -> Iterator[Candidate]:
    """Yield one candidate where most steps have a rank with more to do, and no rank has it in most steps."""
    kinds: tuple[What, ...] = ("own", "more")
    for what in kinds if len(scene.side.ranks) > 1 else ():
        extras = [extra_launches(scene, rank, what) for rank in scene.side.ranks]
        least = WORTH_A_LOOK * scene.step_ms
        late = [one for one in extras if max(one.ms, default=0.0) >= least]
        if len(late) < 2 or any(one.in_most_steps(least) for one in extras):
            continue
        yield _candidate(scene, what, extras, late)


def _candidate(scene: Scene, what: What, extras: list[Extra], late: list[Extra]) -> Candidate:
    most = [max(step) for step in zip(*(one.ms for one in extras), strict=True)]
    mean = statistics.fmean(most)
    regular = mean > 0 and statistics.pstdev(most) <= _ALIKE * mean
    ranks = [
        EvidenceRow(kind="figure", name="late_rank", value=one.rank, ms=one.mean_ms,
                    share=sum(ms > 0 for ms in one.ms) / len(one.ms))
        for one in late
    ]  # fmt: skip
    return Candidate(
        code="alternating_load" if regular else "unsteady",
        removals=tuple(Removal(what, one.rank) for one in late),
        evidence=(*(one.evidence[0] for one in late[:1] if one.evidence), *ranks),
        remedy=Remedy(cure="even_out"),
    )
