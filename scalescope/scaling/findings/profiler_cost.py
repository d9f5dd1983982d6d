"""What cannot be told from a trace alone: whether devices wait for hosts, or only for hosts that are being recorded."""

from collections.abc import Sequence

from scalescope.scaling.finding.codes import COMPUTED_BY_ALL
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.findings.in_range import is_range, is_wide
from scalescope.scaling.findings.shares import mean_step_ms

#: Devices that wait for hosts for less than this share of a step, recording and all, bound it whatever that costs.
_BOUNDS = 0.05


def profiler_cost(scene: Scene, found: Sequence[Finding]) -> list[Finding]:
    """Return a finding where it depends on recording's cost, which is not known, what bounds the step; else none.

    It does not where the hosts bound the step at both ends of the range, or the devices.
    """
    as_run = scene.analysis.as_run
    if as_run is None or as_run.recording_ms is None or scene.replayer.on_cpu:
        return []  # on CPUs the host is what computes
    if not is_range(scene) or not is_wide(scene):
        return []
    if any(one.code == "host_bound" and (one.low_ms or 0.0) > 0 for one in found):
        return []
    if any(one.code == "debug_mode" for one in found):
        return []  # which is to be switched off first, whatever then bounds the step
    idle = mean_step_ms(scene.analysis, "idle_launch") + mean_step_ms(scene.analysis, "exposed_wait")
    if idle < _BOUNDS * mean_step_ms(scene.analysis, "window"):
        return []
    return [
        Finding(
            code="profiler_cost",
            ms=None,
            low_ms=None,
            high_ms=None,
            evidence=(
                EvidenceRow(kind="figure", name="recording_low", ms=min(as_run.recording_ms.low, idle)),
                EvidenceRow(kind="figure", name="recording_high", ms=min(as_run.recording_ms.high, idle)),
                EvidenceRow(kind="figure", name="idle_launch", ms=idle),
            ),
            remedy=Remedy(cure="give_step_ms"),
            backed="none",
        )
    ]


def are_less_than_is_unknown(found: Sequence[Finding], unknown: Finding) -> bool:
    """Tell whether all that was found may cost nothing, is nobody's own, and is less than what cannot be told.

    Every job copies and waits a little; named first, that would pass for what bounds the step. What one rank alone does
    is worth its place whatever it costs.
    """
    apart = _apart_ms(unknown)
    return bool(found) and all(
        one.at_most and one.rank is None and (one.low_ms or 0.0) <= 0 and (one.ms or 0.0) < apart for one in found
    )


def without_trades(found: Sequence[Finding], unknown: Finding) -> list[Finding]:
    """Return what was found but for what all ranks compute alike, if that is less than what cannot be told: a job was
    given it for the sake of memory, and whether its devices bind at all is asked first.
    """
    apart = _apart_ms(unknown)
    return [one for one in found if one.code not in COMPUTED_BY_ALL or (one.ms or 0.0) >= apart]


def _apart_ms(unknown: Finding) -> float:
    ms = {row.name: row.ms or 0.0 for row in unknown.evidence}
    return ms["recording_high"] - ms["recording_low"]
