"""Whether a run's profiled steps stand for those that it ran: where they do not, its traces' shares need not hold."""

from scalescope.records.steps.unevenness import UNLIKE
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import StepTimes
from scalescope.scaling.finding import is_known, is_of_steady_steps

#: Of the measured step: a step as run that is so near is the same one.
_APART = 0.02
#: Of the mean step: what long steps take of it beside a typical one, from which on the typical one is the smaller part.
_MOST = 0.5


def is_doubtful(run: RunAnalysis) -> bool:
    """Tell whether profiled steps are unlike the measured ones for no recording's sake: the machine was unsteady.

    Not where the costliest finding is what makes steps differ.
    """
    times = run.step_times
    if run.growing is not None or any(is_known(one) or is_of_steady_steps(one) for one in run.findings[:1]):
        return False  # what makes its steps differ is known
    if times is None:
        return _is_of_other_steps_than_headers(run)
    if run.recurring is not None and any(one.step % run.recurring.every in run.recurring.phases for one in run.steps):
        return False  # the window met one of those that are longer every so often
    if run.recurring is None and scatter(times):  # a validation every so often is told as such
        return True
    return (times.unsteady and (is_unlike(run) or contradict(run))) or is_of_other_steps(run)


def scatter(times: StepTimes) -> bool:
    """Tell whether steps differ by more than a step takes, so that a few profiled ones stand for no others.

    Stretches of as many as were profiled do, or steps that are longer for no cause that is timed take most of the mean.
    """
    far = times.placebo_ms is not None and times.measured_step_ms is not None
    if far and (times.placebo_ms or 0.0) >= (times.measured_step_ms or 0.0):
        return True
    long = times.long_steps
    return long is not None and long.cause is None and long.ms >= _MOST * long.mean_step_ms


def are_unlike(times: StepTimes) -> bool:
    """Tell whether profiled steps are much longer or shorter than the measured ones."""
    return times.profiling_overhead_fraction is not None and abs(times.profiling_overhead_fraction) >= UNLIKE


def is_unlike(run: RunAnalysis) -> bool:
    """Tell whether the steps that are told of are much longer or shorter than the measured ones.

    Of ranks on CPUs those count that the figures are of: three steps' median may lie further off than their mean.
    """
    if run.step_times is None:
        return False
    measured, told = run.step_times.measured_step_ms, _told_ms(run)
    if run.activity != "cpu" or measured is None or told is None:
        return are_unlike(run.step_times)
    return abs(told - measured) >= UNLIKE * measured


def _told_ms(run: RunAnalysis) -> float | None:
    """Return the step that figures are of, ms: without recording where that is known, else as profiled."""
    if run.as_run is not None and run.as_run.ranks and run.as_run.parts_ms is not None:
        return run.as_run.parts_ms.value
    return run.step_times.window_step_ms if run.step_times is not None else None


def is_of_other_steps(run: RunAnalysis) -> bool:
    """Tell whether the profiled steps of ranks on CPUs, without recording, are none that the whole run had.

    By a tenth they are not, however uneven its steps. Where hosts compute, a window leaves nothing behind that would
    slow the steps after it.
    """
    as_run, times = run.as_run, run.step_times
    if run.activity != "cpu" or as_run is None or as_run.untraced_by != "steps" or as_run.parts_ms is None:
        return False
    if times is None or times.measured_step_ms is None:
        return False
    measured, told = times.measured_step_ms, as_run.parts_ms
    apart = abs(told.value - measured)
    if apart >= UNLIKE * measured:
        return True
    return apart > max(times.placebo_ms or 0.0, _APART * measured) and not told.low <= measured <= told.high


def _is_of_other_steps_than_headers(run: RunAnalysis) -> bool:
    """Tell whether ranks on CPUs were profiled in steps that are none of those which their traces' headers tell of.

    The same traces in their run's folder are called so, too, by its rows.
    """
    told = run.as_run
    if run.activity != "cpu" or told is None or told.untraced_by != "metadata" or told.untraced_ms is None:
        return False
    replayed, beside = told.parts_ms if told.ranks else None, told.untraced_ms
    if replayed is None or beside.low <= replayed.value <= beside.high:
        return False
    return abs(replayed.value - beside.value) >= UNLIKE * beside.value


def contradict(run: RunAnalysis) -> bool:
    """Tell whether a run's own steps are none that its traces can be of."""
    return run.as_run is not None and run.as_run.own_steps_contradict


def judge_steadiness(run: RunAnalysis) -> None:
    """Call traces no better than degraded whose steps do not stand for the others; once all is known of the run."""
    run.quality.unsteady = is_doubtful(run)
    if run.quality.unsteady and run.quality.verdict == "good":
        run.quality.verdict = "degraded"
