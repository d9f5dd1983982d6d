"""What a trace cannot tell where no step without a profiler is known: then recording's cost is a range.

A cause that is there at one end of the range and gone at the other is not claimed. Said instead is that it cannot be
told, how much recording may cost, and that a step without a profiler would tell.
"""

from collections.abc import Sequence

from scalescope.scaling.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.findings.nothing import nothing

#: A range of the step as run that is wider than this share of it can make a step another kind of step.
_WIDE = 0.05


def only_what_holds(scene: Scene, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that hold at whatever recording costs, with `profiler_cost` for those that do not.

    It comes first where more depends on recording's cost than holds without it.
    """
    told = scene.analysis.as_run
    if told is None or told.source != "range":
        return list(findings) or [nothing(scene)]
    sure = [one for one in findings if one.low_ms is None or one.low_ms > 0]
    unsure = [one for one in findings if one not in sure]
    wide = told.low_ms is not None and told.high_ms is not None and told.high_ms - told.low_ms > _WIDE * told.high_ms
    if not unsure and (sure or not wide):
        return sure or [nothing(scene)]
    if _cost(unsure) >= _cost(sure):
        return [_profiler_cost(scene), *sure]
    return [*sure, _profiler_cost(scene)]


def _cost(findings: Sequence[Finding]) -> float:
    return sum(one.ms or 0.0 for one in findings)


def _profiler_cost(scene: Scene) -> Finding:
    analysis = scene.analysis
    recording = analysis.as_run.recording_ms if analysis.as_run is not None else None
    idle = sum(rank.idle_launch_ms / max(1, rank.steps) for rank in analysis.ranks) / max(1, len(analysis.ranks))
    rows = [EvidenceRow(kind="figure", name="idle_launch", ms=idle)]
    if recording is not None:
        rows += [
            EvidenceRow(kind="figure", name="recording_low", ms=recording.low),
            EvidenceRow(kind="figure", name="recording_high", ms=recording.high),
        ]
    return Finding(
        code="profiler_cost",
        ms=None,
        low_ms=None,
        high_ms=None,
        evidence=tuple(rows),
        remedy=Remedy(cure="give_step_ms"),
        backed="none",
    )
