"""Why a window recorded fewer steps than it was to: by what the job's config says, and its rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from scalescope.records.rows import StepRow
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import FewerRecorded

#: What `profile_steps` records of ranks on CPUs, where the script leaves it open; at least three of many operators.
_ON_CPUS, _LEAST = 10, 3


def fewer_recorded(run: RunAnalysis, settings: Mapping[str, Any], rows: Sequence[StepRow]) -> FewerRecorded | None:
    """Return that one planned window recorded fewer steps than it was to; None where it did not, or nothing tells."""
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
