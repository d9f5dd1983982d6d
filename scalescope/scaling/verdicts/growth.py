"""Whether the growth of the traced step is the growth of the measured one: else its shares say nothing of the job.

A window is a few steps. By how much a stretch of as many steps differs from all the others of its run is known (the
placebo of `step_times`), so it is known how far the two growths may lie apart on a machine that runs evenly. Beyond
that, recording may have lengthened the steps, unless hosts compute, where it costs 2% at most, or the profiled steps
were the shorter ones: then the machine was unsteady. So it was where hosts compute and either end's profiled steps are
far from the measured ones, even if the two growths agree by that.
"""

import math

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import StepTimes
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.study_answer import Waterfall
from scalescope.scaling.verdicts.step_rows.doubt import are_unlike

#: What recording costs of a step that hosts compute, at most: 1.6 µs an operator with its shapes, of which those of
#: 100 µs on average are as small as they get.
_ON_CPUS = 0.02
#: From this share of the step on, a growth that is no larger than what steps differ by is not known at all.
_UNEVEN = 0.1


def add_measured_growth(fall: Waterfall, small: RunAnalysis, large: RunAnalysis) -> None:
    """Put into a waterfall by how much the measured step grew, how far the two may lie apart, and whether they do."""
    before, after = small.step_times, large.step_times
    if before is None or after is None or before.measured_step_ms is None or after.measured_step_ms is None:
        return
    fall.measured_growth_ms = after.measured_step_ms - before.measured_step_ms
    if (known := measured_growth(small, large)) is not None:
        fall.measured_growth_low_ms, fall.measured_growth_high_ms = known.low, known.high
    if before.placebo_ms is None or after.placebo_ms is None:
        return
    on_cpu = large.activity == "cpu"
    recording = _ON_CPUS * after.measured_step_ms if on_cpu else 0.0
    fall.noise_ms = math.hypot(before.placebo_ms, after.placebo_ms) + recording
    if abs(fall.growth_ms - fall.measured_growth_ms) > fall.noise_ms:
        fall.unsteady = on_cpu or _shorter(before) or _shorter(after)
    elif on_cpu and (are_unlike(before) or are_unlike(after)):
        fall.unsteady = True  # both are off, and by as much: what of the growth is whose, such steps do not tell
    elif fall.noise_ms > max(abs(fall.measured_growth_ms), _UNEVEN * after.measured_step_ms):
        fall.unsteady = True  # they agree, since any two would


def measured_growth(small: RunAnalysis, large: RunAnalysis) -> Interval | None:
    """Return what the measured step grew by to the larger count, ms, with its 95% interval by those of both medians;
    None where one of them is not told.
    """
    before, after = small.step_times, large.step_times
    if before is None or after is None or before.measured_step_ms is None or after.measured_step_ms is None:
        return None
    if before.measured_high_ms is None or after.measured_low_ms is None:
        return None
    apart = math.hypot(
        before.measured_high_ms - before.measured_step_ms, after.measured_step_ms - after.measured_low_ms
    )
    grown = after.measured_step_ms - before.measured_step_ms
    return Interval(grown, grown - apart, grown + apart)


def _shorter(times: StepTimes) -> bool:
    """Whether profiled steps are shorter than the others, beyond what steps differ by."""
    return times.unsteady and (times.profiling_overhead_ms or 0.0) < -(times.placebo_ms or 0.0)
