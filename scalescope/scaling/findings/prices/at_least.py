"""What causes bring at least: what they were seen to cost in each step, however the steps differ."""

from collections.abc import Sequence

from scalescope.scaling.finding import LOCK_WAITS
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.replay.change import Change


def seen_at_least_ms(scene: Scene, candidates: Sequence[Candidate], shares: Sequence[float]) -> list[float]:
    """Return what each candidate brings at least that was seen in each step by what nothing else makes, ms.

    Waits for the interpreter's lock vary with the step that they make longer: of five steps that differ, the mean is
    hardly known, but none of them brings less than the one that brings least.
    """
    locked = [any(row.name == LOCK_WAITS for row in one.evidence) for one in candidates]
    scene.replayer.work_out(
        [Change(without=one.removals) for one, seen in zip(candidates, locked, strict=True) if seen],
        quick=True,
        near=True,
    )
    return [
        ms * scene.replayer.least_share(Change(without=one.removals)) if seen else 0.0
        for one, ms, seen in zip(candidates, shares, locked, strict=True)
    ]
