"""What bounds a cause that is seen in every step, however much steps differ: the step with least of it, what is left of
the steps without it, and what it takes by itself.
"""

import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.figures import LOCK_WAITS
from scalescope.scaling.findings.candidate import Scene, gained_ms
from scalescope.scaling.findings.prices.gain import Gain
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.whatif.replayer import LEAST_SHARE

#: What one rank's host does in each step besides launching.
_OF_A_HOST: tuple[Code, ...] = ("host_stall", "data_loading")
#: Hosts of one machine took up to so many times as long as each other for the same launches, in windows of five steps.
_HOSTS_ALIKE = 1.5


def bounded_by_each(scene: Scene, gain: Gain) -> Gain:
    """Return what a cause brings within what each step tells of it, where nothing else makes what is seen there.

    Waits for the interpreter's lock vary with the step that they make longer: of five steps that differ, the mean is
    hardly known. But none of them brings less than the one that brings least; and where hosts compute, what is left
    without them is even, so that no more goes than the step has beyond that: of the profiled steps, or of the job's own
    where those are longer.
    """
    if not any(row.name == LOCK_WAITS for row in gain.candidate.evidence):
        return gain
    each = scene.replayer.in_each_step(Change(without=gain.candidate.removals))
    if each is None:
        return gain
    high_ms = gain.high_ms
    if scene.replayer.on_cpu:
        as_run = scene.analysis.as_run
        own_ms = as_run.untraced_ms.value if as_run is not None and as_run.untraced_ms is not None else 0.0
        beyond_ms = max(scene.step_ms, own_ms) - each.left_low_ns / 1e6
        high_ms = max((1 + LEAST_SHARE) * gain.ms, beyond_ms if own_ms > scene.step_ms else min(high_ms, beyond_ms))
    return replace(gain, low_ms=max(gain.low_ms, min(1 - LEAST_SHARE, each.least_share) * gain.ms), high_ms=high_ms)


def as_hosts_take_alike(scene: Scene, gains: Sequence[Gain]) -> list[Gain]:
    """Return what the one late host's stall, or loading, brings where the other hosts take as long as it without that.

    Without it the last of the other hosts bounds the step, where devices do not. Of how long that one takes as run, a
    window tells little: as recorded, hosts of healthy jobs took 17 to 31 ms for the same launches, now the one and now
    the other longer, and in steps without a profiler alike. So by the window alone it brings too little where the other
    one took longer by chance. It brings no more than it takes, and no more than is left down to the devices. Where
    another rank is late for a cause of its own, that is no chance, and what both bring is dealt out already.
    """
    late = {one.candidate.rank for one in gains if one.low_ms > 0} - {None}
    return [_as_others_take(scene, one) if late <= {one.candidate.rank} else one for one in gains]


def _as_others_take(scene: Scene, gain: Gain) -> Gain:
    one = gain.candidate
    ranks = [rank for rank in scene.side.ranks if rank != one.rank]
    if scene.replayer.on_cpu or one.rank is None or not ranks or one.code not in _OF_A_HOST or not one.beyond_ms:
        return gain
    takes_ms = statistics.fmean(one.beyond_ms)
    freed = Change(without=one.removals, host_free=True)
    scene.replayer.work_out([freed], quick=True, near=True)
    most_ms = min(takes_ms, gained_ms(scene.replayer, freed))
    if most_ms <= gain.ms:
        return gain
    hosts_ms = {rank: _host_ms(scene, rank) for rank in scene.side.ranks}
    own_ms = hosts_ms[one.rank] - takes_ms
    alike = max(hosts_ms[rank] for rank in ranks) <= _HOSTS_ALIKE * own_ms
    return replace(gain, ms=most_ms if alike else gain.ms, high_ms=max(gain.high_ms, most_ms))


def _host_ms(scene: Scene, rank: int) -> float:
    """Return what a rank's host takes for its launches in the step as run, in the mean of the steps, ms."""
    return statistics.fmean(float(scene.side.launches[rank, step].host_ns.sum()) / 1e6 for step in scene.side.steps)
