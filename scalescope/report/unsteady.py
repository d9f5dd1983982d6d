"""Whether the machine was unsteady while a series was measured, and what comes first then."""

from collections.abc import Sequence

from scalescope.report.views import points_of
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.study_answer import StudyAnalysis
from scalescope.scaling.verdicts.step_rows.doubt import was_unsteady

#: What comes before any other advice where the machine was unsteady.
MEASURE_AGAIN = "measure again on a quiet machine, or in more windows (the profiler's repeat)"


def is_unsteady_series(study: StudyAnalysis, series: str, runs: Sequence[RunAnalysis]) -> bool:
    """Tell whether the machine was unsteady while a series that has points was measured: its traces' growth contradicts
    the measured one, or its smallest or largest run's profiled steps the measured ones.
    """
    points = points_of(study, series)
    grown = [one for one in study.waterfall if one.series == series and one.to_world_size == points[-1].world_size]
    ends = {points[0].run, points[-1].run}
    return any(fall.unsteady for fall in grown) or any(was_unsteady(run) for run in runs if run.name in ends)
