"""What a cause costs of which not all is seen, where what it leaves of the step is what its devices do.

No cure makes a step shorter than its devices' own work. Where hosts that took no time at all would leave the same step,
nothing that the traces do not show can be had beyond what the replay takes out: then that is not the least of it, and
it is as well known as the step as run is. The one is the other less what is left.
"""

import msgspec

from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.findings.candidate import Candidate, Scene, gained_ms
from scalescope.scaling.findings.in_range import is_range
from scalescope.scaling.replay.change import Change

#: Hosts that are free bring no more than this share of a step where its devices alone bound it.
_AT_DEVICES = 0.01


class Gained(msgspec.Struct, frozen=True):
    """What a cause costs, ms a step, and whether it may be more."""

    ms: Interval
    more: bool


def surely_gained(scene: Scene, candidate: Candidate, gain_ms: Interval) -> Gained:
    """Return what a candidate of which not all is seen costs, given what its removals bring."""
    replayer, as_run = scene.replayer, scene.analysis.as_run
    if replayer.on_cpu or not candidate.removals:
        return Gained(gain_ms, more=True)
    without = Change(without=candidate.removals)
    freed = msgspec.structs.replace(without, host_free=True)
    replayer.work_out([without, freed], quick=True, near=True)
    gained = gained_ms(replayer, without)
    if gained <= 0 or gained_ms(replayer, freed) - gained > _AT_DEVICES * scene.step_ms:
        # what is told is sure in all of a range
        ms = gain_ms.low if is_range(scene) else gain_ms.value
        return Gained(Interval(ms, ms, max(ms, gain_ms.high)), more=True)
    low, high = gain_ms.low, gain_ms.high
    if as_run is not None and as_run.low_ms is not None and as_run.high_ms is not None:
        left_ms, part = scene.step_ms - gained, gain_ms.value / gained
        low, high = min(low, part * (as_run.low_ms - left_ms)), max(high, part * (as_run.high_ms - left_ms))
    return Gained(Interval(gain_ms.value, max(0.0, low), high), more=False)
