"""What can be said where the step as run is only known as a range: what holds in all of it.

A cause that costs time whatever recording costs holds as it is. One that was seen (a kernel that one rank alone runs, a
host that loads for 11 ms of the step) is a fact at either end; where at one of them the step does not feel it, it may
cost nothing, and at most what it does at the other. What is only inferred (hosts that launch slowly) is no fact.
"""

from collections.abc import Sequence

from scalescope.scaling.as_run.calibrate import ON_DEVICES
from scalescope.scaling.finding.codes import ON_THE_DEVICE, Code
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.sizes import bounded
from scalescope.scaling.findings.candidate import WORTH_SAYING, Candidate, Scene
from scalescope.scaling.findings.containment import held_by
from scalescope.scaling.replay.change import Change

#: What devices or hosts are seen to do, and nobody else's doing explains.
_SEEN: tuple[Code, ...] = (
    *ON_THE_DEVICE, "copies", "data_loading", "host_stall", "synchronising", "recompilation", "allocation",
    "small_collectives", "debug_mode", "element_reads", "recomputation", "unused_forward",
)  # fmt: skip
#: What settings bring varies for other reasons.
_OF_SETTINGS: tuple[Code, ...] = ("small_buckets", "late_bucket", "exposed_transfer", "slow_transfer", "contention")
#: What hosts do, and may cost nothing, is worth a doubt where it may cost so many times what is worth saying.
_WORTH_A_DOUBT = 2.0


def is_range(scene: Scene) -> bool:
    """Whether of the step as run only a range is known."""
    return scene.analysis.as_run is not None and scene.analysis.as_run.source == "range"


def is_wide(scene: Scene) -> bool:
    """Whether that range is wider than what devices drift by makes it."""
    as_run = scene.analysis.as_run
    if as_run is None or as_run.low_ms is None or as_run.high_ms is None:
        return False
    return as_run.high_ms - as_run.low_ms > (0.025 + 2 * ON_DEVICES) * scene.step_ms


def hold(scene: Scene, candidates: Sequence[Candidate], found: Sequence[Finding]) -> list[Finding]:
    """Return the findings that hold in the range, and of the candidates that are none what those cost at most."""
    if not is_range(scene):
        return list(found)
    kept = [one for one in found if (one.low_ms or 0.0) > 0 or one.code in (*_OF_SETTINGS, *_SEEN)]
    known = {(one.code, one.rank) for one in found}
    doubtful = [one for one in candidates if one.removals and one.code in _SEEN and (one.code, one.rank) not in known]
    sure = [one for one in candidates if one.removals and (one.code, one.rank) in known]
    return kept + _at_most(scene, doubtful, [*sure, *doubtful])


def _at_most(scene: Scene, candidates: Sequence[Candidate], seen: Sequence[Candidate]) -> list[Finding]:
    """Return what each candidate costs where recording costs most, and the hosts are therefore fastest.

    What of all that was `seen` would go with it is taken out before.
    """
    before = [Change(without=held_by(seen, one)) for one in candidates]
    changes = [
        Change(without=tuple(dict.fromkeys((*first.without, *one.removals))))
        for first, one in zip(before, candidates, strict=True)
    ]
    scene.replayer.work_out([*changes, *(one for one in before if one.without)], near=True)
    findings = []
    for one, first, change in zip(candidates, before, changes, strict=True):
        told = scene.replayer.predict(change, beyond=first if first.without else None, near=True)
        most = -(told.low_ms or 0.0)
        least = WORTH_SAYING * (1.0 if one.code in ON_THE_DEVICE else _WORTH_A_DOUBT)
        if most >= least * scene.step_ms:
            findings.append(
                Finding(
                    code=one.code,
                    rank=one.rank,
                    ranks=one.ranks,
                    ms=most,
                    low_ms=0.0,
                    high_ms=most,
                    fraction=most / scene.step_ms,
                    evidence=bounded(one.evidence, most),
                    remedy=one.remedy,
                    backed="replay",
                    at_most=True,
                )
            )
    return findings
