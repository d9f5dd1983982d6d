"""What is said of profiled steps beside the measured ones: what profiling costs, or that the machine was unsteady."""

from scalescope.report.drawing.numbers import figure, percent
from scalescope.scaling.answer import RunAnalysis, StepTimes
from scalescope.scaling.verdicts.step_rows.doubt import are_unlike, contradict, is_doubtful

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
    if not are_unlike(times):
        if not contradict(run):
            return ""
        return f"On {where} the machine was unsteady: the job's own steps contradict its traces, {_MISLEADS}."
    share = percent(abs(times.profiling_overhead_fraction or 0.0), 0)
    apart = f"the profiled steps are {share} {'longer' if (times.profiling_overhead_fraction or 0) > 0 else 'shorter'}"
    if is_doubtful(run):
        why = _why(run, times)
        return f"On {where} the machine was unsteady: {apart} than the measured ones, {why}, {_MISLEADS}."
    return f"On {where} {apart} than the measured ones, {_MISLEADS}."


def _why(run: RunAnalysis, times: StepTimes) -> str:
    cost, placebo = times.profiling_overhead_ms or 0.0, times.placebo_ms
    if placebo is not None and abs(cost) <= placebo:
        return _no_more(times)
    return "which no profiling makes them" if cost < 0 else "more than recording can make them"


def _no_more(times: StepTimes) -> str:
    spread = f" (± {figure(times.placebo_ms, 2)} ms)" if times.placebo_ms is not None else ""
    return f"no more than stretches of steps without a profiler differ by themselves{spread}"
