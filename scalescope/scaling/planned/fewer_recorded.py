"""Why a window recorded fewer steps than it was to: as the job says; of jobs that do not, by its config and rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from scalescope.records.rows import StepRow
from scalescope.records.steps.recording import RecordingFacts
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import FewerRecorded

#: What `profile_steps` records of ranks on CPUs, where the script leaves it open; at least three of many operators.
_ON_CPUS, _LEAST = 10, 3


def fewer_recorded(
    run: RunAnalysis, settings: Mapping[str, Any], rows: Sequence[StepRow], recording: RecordingFacts | None = None
) -> FewerRecorded | None:
    """Return that one planned window recorded fewer steps than it was to; None where it did not, or nothing tells."""
    if recording is not None and any(one.planned is not None for one in recording.windows):
        return _as_said(run, recording)
    profiler = settings.get("profiler")
    if not isinstance(profiler, dict) or profiler.get("repeat") != 1 or profiler.get("on_anomaly") or not rows:
        return None
    recorded = max((one.steps for one in run.ranks), default=0)
    if run.quality.slowed is not None:
        recorded += len(run.quality.slowed.steps)  # they are recorded, and left out of the answer
    asked = profiler.get("active")
    wanted = asked
    if asked is None and "what" in settings and run.activity == "cpu":  # a job of ours has room for so many, or fewer
        wanted = _ON_CPUS
    if not isinstance(wanted, int) or run.steps_by != "profiler" or not 0 < recorded < wanted or run.windows > 1:
        return None
    last = max((one.step for one in run.steps), default=None)
    if last is not None and rows[-1].step <= last:
        return FewerRecorded(wanted=wanted, why="loop_ended")
    if asked is None and recorded >= _LEAST:
        return FewerRecorded(wanted=wanted, why="many_operators")
    return FewerRecorded(wanted=wanted, why="no_room") if isinstance(profiler.get("max_mib"), int | float) else None


def _as_said(run: RunAnalysis, recording: RecordingFacts) -> FewerRecorded | None:
    """Return what the job says of the window that an answer is of: it cut the window itself."""
    profiled = {one.step for one in run.steps}
    own = [one for one in recording.windows if profiled & set(one.steps)]
    if run.steps_by != "profiler" or run.windows > 1 or len(own) != 1:
        return None
    planned, cut = own[0].planned, own[0].cut
    return FewerRecorded(wanted=planned, why=cut) if planned is not None and cut is not None else None
