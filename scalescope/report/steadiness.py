"""What is said of profiled steps beside the measured ones: what profiling costs, or that the machine was unsteady."""

from scalescope.report.drawing.numbers import figure, percent
from scalescope.scaling.answer import StepTimes
from scalescope.scaling.verdicts.steady import UNLIKE


def profiling_line(times: StepTimes) -> str:
    """Return what profiling costs a step, or that the machine was too unsteady to tell; empty where nothing tells."""
    if times.measured_step_ms is None or times.profiling_overhead_ms is None:
        return ""
    profiled = figure(times.profiled_step_ms or 0, 2)
    text = f"A step takes {figure(times.measured_step_ms, 2)} ms, and {profiled} ms while it is profiled"
    if times.unsteady:
        return f"The machine was unsteady. {text}: {_why(times)}."
    return f"{text}: profiling overhead {figure(times.profiling_overhead_ms, 2)} ms."


def unlike_sentence(times: StepTimes | None, where: str) -> str:
    """Return a warning where the profiled steps are not like the measured ones; empty where they are.

    `where`: what ran them, in words.
    """
    if times is None or times.profiling_overhead_fraction is None or abs(times.profiling_overhead_fraction) < UNLIKE:
        return ""
    share = percent(abs(times.profiling_overhead_fraction), 0)
    apart = f"the profiled steps are {share} {'longer' if times.profiling_overhead_fraction > 0 else 'shorter'}"
    misleads = "so where the time goes, which comes from traces, need not hold for the measured throughput"
    if times.unsteady:
        return f"On {where} the machine was unsteady: {apart} than the measured ones, {_why(times)}, {misleads}."
    return f"On {where} {apart} than the measured ones, {misleads}."


def is_doubtful(times: StepTimes | None) -> bool:
    """Tell whether profiled steps are unlike the measured ones for no recording's sake: the machine was unsteady."""
    return bool(times is not None and times.unsteady and unlike_sentence(times, ""))


def _why(times: StepTimes) -> str:
    cost, placebo = times.profiling_overhead_ms or 0.0, times.placebo_ms
    if placebo is not None and abs(cost) <= placebo:
        return f"no more than stretches of steps without a profiler differ by themselves (± {figure(placebo, 2)} ms)"
    return "which no profiling makes them"
