"""Whether the machine was unsteady while a series was measured, and what comes first then."""

import math
from collections.abc import Sequence

from scalescope.report.views import points_of
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.study_answer import StudyAnalysis
from scalescope.scaling.verdicts.step_rows.doubt import was_unsteady

#: So many windows at least are more than a moment of the machine.
_WINDOWS = 4


def measure_again(runs: Sequence[RunAnalysis]) -> str:
    """Return what comes before any other advice where the machine was unsteady while these ran."""
    return f"measure again on a quiet machine, or {in_more_windows(runs)}"


def in_more_windows(runs: Sequence[RunAnalysis]) -> str:
    """Return how these are to be measured for more to be known of them.

    More windows are written as they are there: by a key of our jobs, an argument of `profile_steps`, or of torch's.
    """
    windows = max(_WINDOWS, 2 * max((run.windows for run in runs), default=1))
    origins, frameworks = {run.origin for run in runs}, {run.framework for run in runs}
    if origins == {"job"}:
        how = f", with profiler.repeat={windows} and steps enough for them"
    elif origins == {"script"}:
        how = f", with profile_steps(…, repeat={windows})"
    elif origins == {None} and frameworks == {"torch"} and all(run.model is None for run in runs):
        how = f", with torch.profiler.schedule(…, repeat={windows})"
    else:
        how = ""
    return f"in more windows{how}"


def is_unsteady_series(study: StudyAnalysis, series: str, runs: Sequence[RunAnalysis]) -> bool:
    """Tell whether the machine was unsteady while a series that has points was measured: its traces' growth contradicts
    the measured one, or its smallest or largest run's profiled steps the measured ones.
    """
    points = points_of(study, series)
    grown = [one for one in study.waterfall if one.series == series and one.to_world_size == points[-1].world_size]
    ends = {points[0].run, points[-1].run}
    return any(fall.unsteady for fall in grown) or any(was_unsteady(run) for run in runs if run.name in ends)


def may_be_nothing(small: RunAnalysis, large: RunAnalysis) -> bool:
    """Tell whether the measured step may be no longer on the larger count: the 95% interval of what it grew by, by
    those of both medians, reaches down to nothing.
    """
    before, after = small.step_times, large.step_times
    if before is None or after is None or before.measured_step_ms is None or after.measured_step_ms is None:
        return False
    if before.measured_high_ms is None or after.measured_low_ms is None:
        return False
    apart = math.hypot(
        before.measured_high_ms - before.measured_step_ms, after.measured_step_ms - after.measured_low_ms
    )
    return after.measured_step_ms - before.measured_step_ms <= apart
