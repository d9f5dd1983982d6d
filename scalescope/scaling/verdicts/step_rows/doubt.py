"""Whether a run's profiled steps stand for those that it ran: where they do not, its traces' shares need not hold."""

from scalescope.records.steps.unevenness import UNLIKE
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import StepTimes
from scalescope.scaling.finding import is_known, is_of_steady_steps


def is_doubtful(run: RunAnalysis) -> bool:
    """Tell whether profiled steps are unlike the measured ones for no recording's sake: the machine was unsteady.

    Not where the costliest finding is what makes steps differ.
    """
    times = run.step_times
    if (
        times is None
        or run.growing is not None
        or any(is_known(one) or is_of_steady_steps(one) for one in run.findings[:1])
    ):
        return False  # what makes its steps differ is known
    if run.recurring is not None and any(one.step % run.recurring.every in run.recurring.phases for one in run.steps):
        return False  # the window met one of those that are longer every so often
    return times.unsteady and (are_unlike(times) or contradict(run))


def are_unlike(times: StepTimes) -> bool:
    """Tell whether profiled steps are much longer or shorter than the measured ones."""
    return times.profiling_overhead_fraction is not None and abs(times.profiling_overhead_fraction) >= UNLIKE


def contradict(run: RunAnalysis) -> bool:
    """Tell whether a run's own steps are none that its traces can be of."""
    return run.as_run is not None and run.as_run.own_steps_contradict


def judge_steadiness(run: RunAnalysis) -> None:
    """Call traces no better than degraded whose steps do not stand for the others; once all is known of the run."""
    run.quality.unsteady = is_doubtful(run)
    if run.quality.unsteady and run.quality.verdict == "good":
        run.quality.verdict = "degraded"
