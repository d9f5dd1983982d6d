"""Whether the machine was unsteady while a series was measured, and what comes first then."""

from collections.abc import Sequence

from scalescope.report.views import points_of
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.planned.more_windows import windows_to_tell
from scalescope.scaling.study_answer import StudyAnalysis
from scalescope.scaling.verdicts.growth import measured_growth
from scalescope.scaling.verdicts.step_rows.doubt import are_unlike, was_unsteady


def measure_again(runs: Sequence[RunAnalysis]) -> str:
    """Return what comes before any other advice where the machine was unsteady while these ran."""
    return f"measure again on a quiet machine, or {in_more_windows(runs)}"


def in_more_windows(runs: Sequence[RunAnalysis]) -> str:
    """Return how these are to be measured for more to be known of them.

    More windows are written as they are there: by a key of our jobs, an argument of `profile_steps`, or of torch's.
    """
    windows = windows_to_tell(max((run.windows for run in runs), default=1))
    more = max((run.more_windows for run in runs if run.more_windows is not None), key=lambda one: one.windows,
               default=None)  # fmt: skip
    origins, frameworks = {run.origin for run in runs}, {run.framework for run in runs}
    if origins == {"job"} and more is not None:
        how = f", with profiler.repeat={more.windows} steps={more.steps}"
    elif origins == {"job"}:
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


def unsteady_ends(runs: Sequence[RunAnalysis]) -> list[RunAnalysis]:
    """Return which of a series' smallest and largest run were unsteady: those whose profiled steps are unlike the
    measured ones; where neither's are, the one whose steps differ more.
    """
    timed = [(run, run.step_times) for run in runs if run.step_times is not None]
    off = [run for run, times in timed if was_unsteady(run) or are_unlike(times)]
    if off or not timed:
        return off
    return [max(timed, key=lambda one: (one[1].placebo_ms or 0.0) / (one[1].measured_step_ms or 1.0))[0]]


def may_be_nothing(small: RunAnalysis, large: RunAnalysis) -> bool:
    """Tell whether the measured step may be no longer on the larger count: the 95% interval of what it grew by reaches
    down to nothing.
    """
    grown = measured_growth(small, large)
    return grown is not None and grown.low <= 0
