"""Modes for debugging that are left on: anomaly detection, and launches that wait for their kernels.

What a mode takes of a host that computes is time of its step. A device's host may take it beside the device: there the
replay tells what its looks cost, which wait for the device, and host and device that take turns lose the shorter one's
time at most.
"""

import math
from collections.abc import Iterator, Sequence

from scalescope.scaling.evidence.causes.debugging import ANOMALY, BLOCKING, STACKS
from scalescope.scaling.evidence.host_cause import HostCause
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.candidate import WORTH_SAYING, Candidate, Scene
from scalescope.scaling.replay.removal import Removal


def debug_modes(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each mode; of one rank alone on CPUs the work of its own is told instead."""
    for cause in scene.host or ():
        mode = mode_of(cause)
        if mode is None or not scene.worth_a_look(cause.typical_ns / 1e6):
            continue
        ms = cause.typical_ns / 1e6
        by_replay = mode == ANOMALY and not scene.replayer.on_cpu
        if by_replay or cause.rank is None:
            yield Candidate(
                code="debug_mode",
                rank=cause.rank,
                removals=(Removal("reads", cause.rank), *_stacks(cause)) if by_replay else (),
                gain_ms=None if by_replay else (ms, 0.0 if mode == BLOCKING else ms, ms),
                evidence=_evidence(cause, mode, known=scene.replayer.on_cpu),
                remedy=_remedy(mode),
                at_most=mode == BLOCKING,
                at_least=mode == ANOMALY,
            )


def _stacks(cause: HostCause) -> Iterator[Removal]:
    """Yield what takes the stacks out, which are kept with each node before what it launches."""
    for one in cause.evidence:
        if one.name == STACKS:
            yield Removal("pause", cause.rank, round(one.ns), launches=math.ceil(one.count or 0.0))


def without_their_symptoms(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates without the waits for devices, and the launching, that a mode makes by itself."""
    modes = [one for one in candidates if one.code == "debug_mode"]
    ranks = {one.rank for one in modes}
    return [
        one
        for one in candidates
        if not (modes and one.code == "synchronising" and (one.rank in ranks or None in ranks))
        and not (one.code == "host_bound" and None in ranks)
    ]


def unpriced_modes(host: Sequence[HostCause], step_ms: float, *, on_cpu: bool) -> list[Finding]:
    """Return the findings of modes that all ranks are in, where no replay tells what anything costs."""
    found = []
    for cause in host:
        mode, ms = mode_of(cause), min(cause.typical_ns / 1e6, step_ms)  # as run it is shorter than recorded
        if mode is None or cause.rank is not None or not step_ms or ms < WORTH_SAYING * step_ms:
            continue
        at_least = mode == ANOMALY and on_cpu
        found.append(
            Finding(
                code="debug_mode",
                ms=ms,
                low_ms=ms if at_least else 0.0,
                high_ms=ms,
                fraction=ms / step_ms,
                evidence=_evidence(cause, mode, known=on_cpu),
                remedy=_remedy(mode),
                backed="bound",
                at_most=not at_least,
                at_least=at_least,
            )
        )
    return found


def mode_of(cause: HostCause) -> str | None:
    """Return which mode a cause is; None for what is none."""
    return cause.evidence[0].name if cause.code == "debug_mode" else None


def _evidence(cause: HostCause, mode: str, *, known: bool) -> tuple[EvidenceRow, ...]:
    ms = cause.typical_ns / 1e6 if known else None  # beside a device, its host's time is no time of the step
    return (EvidenceRow(kind="figure", name=mode, ms=ms, calls=cause.evidence[0].count),)


def _remedy(mode: str) -> Remedy:
    return Remedy(cure="launch_without_waiting" if mode == BLOCKING else "no_anomaly_detection")
