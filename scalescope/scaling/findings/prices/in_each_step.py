"""What bounds a cause that is seen in every step, however much steps differ: the step with least of it, and what is
left of the steps without it.
"""

from msgspec.structs import replace

from scalescope.scaling.finding.figures import LOCK_WAITS
from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.findings.prices.gain import Gain
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.whatif.replayer import LEAST_SHARE


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
