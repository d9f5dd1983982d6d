"""What may go with a cause, and may as well have another reason: its interval holds all of it, and its cost half."""

from msgspec.structs import replace

from scalescope.scaling.finding.figures import LOADER_WORKERS, MAY_BE_OTHERS, MAY_BE_OTHERS_UP_TO
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.finding.order import own_ms
from scalescope.scaling.findings.candidate import Scene, gained_ms
from scalescope.scaling.findings.prices.gain import Gain
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal

#: What is told of what may go with a cause, or may not.
_OF_OTHERS = (MAY_BE_OTHERS, MAY_BE_OTHERS_UP_TO, LOADER_WORKERS)


def with_what_may_go(scene: Scene, gain: Gain, all_causes: tuple[Removal, ...]) -> Gain:
    """Return what a cause brings up to all that may go with it; `all_causes`: what takes all that was found out.

    Behind the other causes: what these make longer goes with them.
    """
    if not (perhaps := gain.candidate.perhaps):
        return gain
    without = Change(without=all_causes)
    further = Change(without=(*perhaps, *all_causes))
    scene.replayer.work_out([without, further], quick=True, near=True)
    more_ms = max(0.0, gained_ms(scene.replayer, further) - gained_ms(scene.replayer, without))
    row = EvidenceRow(kind="figure", name=MAY_BE_OTHERS, ms=more_ms / 2)
    told = replace(gain.candidate, evidence=(*gain.candidate.evidence, row))
    return replace(gain, candidate=told, ms=gain.ms + more_ms / 2, high_ms=gain.high_ms + more_ms)


def without_others(finding: Finding) -> Finding:
    """Return a finding at what it costs for sure, where what may go with it is told as another one."""
    others_ms = (finding.ms or 0.0) - own_ms(finding)
    if others_ms <= 0 or not finding.ms or finding.high_ms is None:
        return finding
    times = own_ms(finding) / finding.ms
    return replace(
        finding,
        ms=own_ms(finding),
        high_ms=max(own_ms(finding), finding.high_ms - may_go_ms(finding)),
        fraction=None if finding.fraction is None else times * finding.fraction,
        evidence=tuple(row for row in finding.evidence if row.name not in _OF_OTHERS),
    )


def may_go_ms(finding: Finding) -> float:
    """Return all that may go with a cause, ms: as much as its interval ends later for that."""
    told = {row.name: row.ms or 0.0 for row in finding.evidence}
    return told.get(MAY_BE_OTHERS_UP_TO, 2 * told.get(MAY_BE_OTHERS, 0.0))
