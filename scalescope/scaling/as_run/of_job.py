"""The step as run of a job whose own steady steps are timed: those are what it had, and not a window's few.

A window's replay without recording says where such a step goes. On ranks that share cores it is longer or shorter than
the job's own, for what else the machine did: that is told beside it, as a part of neither.
"""

import math
from collections.abc import Sequence

import msgspec

from scalescope.scaling.answer import AsRun, RunAnalysis
from scalescope.scaling.answer_rows import KindRow
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.kinds import is_now_and_then, is_of_steady_steps
from scalescope.scaling.verdicts.step_rows.doubt import is_doubtful

#: Of the job's own step: a replayed one that is so near is that one.
SAME = 0.01
#: … or, where the two are known no better, one so near: a reader would look for a reason that is not there.
NEAR = 0.03
#: Of steps that are farther off nothing is told as of the job's own, steady or not: what cost 177.5 ms of one of 656.3
#: was *between 177.5 ms and 270.4 ms of the 435.5 ms step*, and 145 of that.
FAR = 0.2


def tell_step_of_job(run: RunAnalysis) -> None:
    """Let the step as run of ranks on CPUs be the median of the job's own steady steps; once all is priced.

    Where hosts compute, a window leaves nothing behind that would slow the steps after it. On devices it does: there
    the steps before the window tell, which the replay is held against. Where some are longer every so often it is the
    median of those between, whether or not the window met a longer one: that makes the profiled ones others than it.
    """
    told, step = run.as_run, measured_step(run)
    if told is None or step is None or told.replayed_ms is not None:
        return
    if told.step_ms is not None and told.ranks:
        told.replayed_ms = told.parts_ms
    told.step_ms, told.low_ms, told.high_ms = step.value, step.low, step.high
    # of an unsteady machine's, all is told of these alone, unless they are as long as the job's own
    if told.replayed_ms is None:
        return
    if is_step_of_job(told) or not (is_doubtful(run) or abs(beyond_the_job_ms(told)) > FAR * step.value):
        _share_of_job(run, told.replayed_ms.value, step.value)


def _share_of_job(run: RunAnalysis, parts_ms: float, step_ms: float) -> None:
    """Let shares of the profiled steps, as long as their parts add up to, be shares of the job's own.

    A cause that takes as long as that one, and longer, is a part of those alone.
    """

    def own(ms: float | None, fraction: float | None) -> float | None:
        if not ms or not fraction or ms >= step_ms or abs(ms / fraction - parts_ms) > SAME * parts_ms:
            return fraction
        return ms / step_ms

    run.findings = [
        one
        if is_of_steady_steps(one) or is_now_and_then(one)
        else msgspec.structs.replace(one, fraction=own(one.ms, one.fraction))
        for one in run.findings
    ]
    run.advice = [msgspec.structs.replace(one, fraction=own(one.gain_ms, one.fraction) or 0.0) for one in run.advice]


def measured_step(run: RunAnalysis) -> Interval | None:
    """Return the step, ms, of ranks on CPUs by their job's own: as its rows tell, else as its traces do; None where
    neither does. Traces hold a few steps beside the window: those tell where the profiled ones are none of them.
    """
    told, times = run.as_run, run.step_times
    if run.activity != "cpu" or told is None:
        return None
    if told.untraced_by == "metadata":
        beside, parts = told.untraced_ms, told.parts_ms
        return None if beside is None or parts is None or beside.low <= parts.value <= beside.high else beside
    if told.untraced_by != "steps" or times is None or times.measured_step_ms is None:
        return None
    value = times.measured_step_ms
    low, high = times.measured_low_ms, times.measured_high_ms
    return Interval(value, value if low is None else low, value if high is None else high)


def beyond_the_job_ms(told: AsRun | None) -> float:
    """Return by how much the profiled steps, without recording, are longer than the job's own, ms; 0 where unknown."""
    if told is None or told.replayed_ms is None or told.step_ms is None:
        return 0.0
    return told.replayed_ms.value - told.step_ms


def kinds_of_step(run: RunAnalysis) -> Sequence[KindRow]:
    """Return what the compute of the step that is told of consists of; once it is known which one that is.

    Where the profiled steps are told without recording alone it is theirs: recording costs those kinds most that are
    called most, and not all are told at another pace alike.
    """
    told = run.as_run
    return told.kinds if told is not None and told.replayed_ms is not None and told.kinds else run.kinds


def is_step_of_job(told: AsRun | None) -> bool:
    """Tell whether the parts that are told of a step as run add up to one that the job had, as far as that is known."""
    if told is None or told.step_ms is None:
        return True
    beyond = abs(beyond_the_job_ms(told))
    known = math.hypot(interval_of_job(told).half, told.replayed_ms.half) if told.replayed_ms is not None else 0.0
    return beyond <= max(SAME * told.step_ms, min(known, NEAR * told.step_ms))


def is_of_other_length(told: AsRun | None) -> bool:
    """Tell whether the parts of the profiled steps add up to another length than the job's own, near as that may be.

    Beyond that no reader lays the two lengths beside each other without asking which one the step has.
    """
    return told is not None and abs(beyond_the_job_ms(told)) > SAME * (told.step_ms or 0.0)


def recording_by_own_steps(told: AsRun | None, traced_ms: float) -> Interval | None:
    """Return by how much profiled steps of `traced_ms` are longer than the job's own, with its interval, ms, where what
    recording's terms come to leaves them shorter than those; else None.

    Then the job's own steps bound it: without recording no step is of another job.
    """
    if told is None or told.step_ms is None or beyond_the_job_ms(told) >= -SAME * told.step_ms:
        return None
    own = interval_of_job(told)
    return Interval(traced_ms - own.value, traced_ms - own.high, traced_ms - own.low)


def interval_of_job(told: AsRun) -> Interval:
    """Return the step as run with its interval, ms; a step that is told without one stands for itself."""
    value = told.step_ms or 0.0
    return Interval(
        value, value if told.low_ms is None else told.low_ms, value if told.high_ms is None else told.high_ms
    )
