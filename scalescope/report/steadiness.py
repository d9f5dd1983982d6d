"""What is said of profiled steps beside the measured ones: what profiling costs, or that the machine was unsteady."""

from scalescope.records.steps.unevenness import UNLIKE
from scalescope.report.drawing.numbers import figure, percent
from scalescope.scaling.answer import RunAnalysis, StepTimes
from scalescope.scaling.finding import is_known, is_of_steady_steps

_MISLEADS = "so where the time goes, which comes from traces, need not hold for the measured throughput"


def profiling_line(run: RunAnalysis) -> str:
    """Return what profiling costs a step, or that the machine was too unsteady to tell; empty where nothing tells."""
    times = run.step_times
    if times is None or times.measured_step_ms is None or times.profiling_overhead_ms is None:
        return ""
    profiled = figure(times.profiled_step_ms or 0, 2)
    if run.growing is not None:
        text = f"At the profiled steps one takes {figure(times.measured_step_ms, 2)} ms, and {profiled} ms profiled"
        cost = figure(times.profiling_overhead_ms, 2)
        return f"{text}: {_no_more(times)}." if times.unsteady else f"{text}: profiling overhead {cost} ms."
    text = f"A step takes {figure(times.measured_step_ms, 2)} ms, and {profiled} ms while it is profiled"
    if times.unsteady:
        # by a few per cent steps differ on any machine: then only what profiling costs is not known
        doubt = "The machine was unsteady. " if is_doubtful(run) else ""
        return f"{doubt}{text}: {_why(run, times)}."
    return f"{text}: profiling overhead {figure(times.profiling_overhead_ms, 2)} ms."


def unlike_sentence(run: RunAnalysis, where: str) -> str:
    """Return a warning where the profiled steps are not like the measured ones; empty where they are.

    `where`: what ran them, in words.
    """
    times = run.step_times
    if times is None or run.growing is not None:  # its steps are unlike one another
        return ""
    if not _are_unlike(times):
        if not _contradict(run):
            return ""
        return f"On {where} the machine was unsteady: the job's own steps contradict its traces, {_MISLEADS}."
    share = percent(abs(times.profiling_overhead_fraction or 0.0), 0)
    apart = f"the profiled steps are {share} {'longer' if (times.profiling_overhead_fraction or 0) > 0 else 'shorter'}"
    if is_doubtful(run):
        why = _why(run, times)
        return f"On {where} the machine was unsteady: {apart} than the measured ones, {why}, {_MISLEADS}."
    return f"On {where} {apart} than the measured ones, {_MISLEADS}."


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
    return times.unsteady and (_are_unlike(times) or _contradict(run))


def _are_unlike(times: StepTimes) -> bool:
    return times.profiling_overhead_fraction is not None and abs(times.profiling_overhead_fraction) >= UNLIKE


def _contradict(run: RunAnalysis) -> bool:
    return run.as_run is not None and run.as_run.own_steps_contradict


def _why(run: RunAnalysis, times: StepTimes) -> str:
    cost, placebo = times.profiling_overhead_ms or 0.0, times.placebo_ms
    if placebo is not None and abs(cost) <= placebo:
        return _no_more(times)
    return "which no profiling makes them" if cost < 0 else "more than recording can make them"


def _no_more(times: StepTimes) -> str:
    spread = f" (± {figure(times.placebo_ms, 2)} ms)" if times.placebo_ms is not None else ""
    return f"no more than stretches of steps without a profiler differ by themselves{spread}"
