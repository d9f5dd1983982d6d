"""What causes on hosts cost where recording may have slowed the devices, too: by how much no trace tells."""

import math

from msgspec.structs import replace

from scalescope.scaling.as_run.calibrate import ON_DEVICES
from scalescope.scaling.as_run.replays import NEAR
from scalescope.scaling.finding.codes import COMPUTED_BY_ALL, ON_THE_DEVICE, Code
from scalescope.scaling.findings.candidate import Scene, gained_ms
from scalescope.scaling.findings.prices.gain import Gain
from scalescope.scaling.replay.change import Change

#: What devices do beside computing: no gap of a host's is part of it.
_MOVED: tuple[Code, ...] = ("exposed_transfer",)


def beside_full_devices(scene: Scene, gains: list[Gain]) -> list[Gain]:
    """Return what causes on hosts bring as bounds where what devices do takes as long as a known step by itself.

    The step as run is longer than that one then, with all of recording's cost taken out that the terms know. What is
    left over, it may have cost the devices, as their pace, or the hosts, in the very gaps that would be the cause: no
    trace tells which, and in the latter case the known step has none of the gaps.
    """
    replayer, as_run, known = scene.replayer, scene.analysis.as_run, scene.replayer.known_ns
    if replayer.on_cpu or known is None or as_run is None or as_run.reason == "not_replayed":
        return gains
    full_ms = scene.step_ms - scene.share_ms("idle_launch") - scene.share_ms("idle_data")
    if full_ms < (1 - NEAR) * known.value / 1e6:
        return gains
    return [
        replace(one, low_ms=0.0, candidate=replace(one.candidate, at_most=True))
        if one.candidate.code not in (*ON_THE_DEVICE, *COMPUTED_BY_ALL, *_MOVED, "copies")
        and one.candidate.rank is None
        and one.candidate.seen is None
        else one
        for one in gains
    ]


def with_devices_unrecorded(scene: Scene, gains: list[Gain], whole: Change, step_ms: float) -> list[Gain]:
    """Return what hosts cost in an untraced step that was told, as high as where recording slowed the devices, too.

    Devices take up to `ON_DEVICES` longer while they are recorded. Of a step that is known without recording, that much
    of what the trace has them do is idle time, which goes with what holds the hosts up; as far as the hosts are not
    what bounds the step without the causes (`step_ms`).
    """
    as_run = scene.analysis.as_run
    on_hosts = [
        one for one in gains if one.candidate.code not in (*ON_THE_DEVICE, *_MOVED) and one.candidate.seen is None
    ]
    if scene.replayer.on_cpu or as_run is None or as_run.source in ("range", "not_needed") or not on_hosts:
        return gains
    freed = replace(whole, host_free=True)
    scene.replayer.work_out([freed], quick=True, near=True)
    bound_ms = step_ms - (scene.step_ms - gained_ms(scene.replayer, freed))
    more_ms = max(0.0, ON_DEVICES * step_ms - max(0.0, bound_ms))
    total = sum(one.ms for one in on_hosts)
    return [
        replace(one, high_ms=one.ms + math.hypot(one.high_ms - one.ms, more_ms * one.ms / total))
        if total > 0 and any(one is other for other in on_hosts)
        else one
        for one in gains
    ]
