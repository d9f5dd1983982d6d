"""Which step is shown: the one as run, beside the one as profiled where recording makes a difference, or alone."""

import statistics

from scalescope.records.steps.unevenness import UNLIKE
from scalescope.report.drawing.numbers import milliseconds, percent
from scalescope.report.replayed import between_longer_ones, fewer_replayed, long_among, why_fewer
from scalescope.scaling.answer import Efficiency, RunAnalysis
from scalescope.scaling.answer_rows import Split
from scalescope.scaling.as_run.of_job import beyond_the_job_ms, interval_of_job, is_step_of_job
from scalescope.scaling.as_run.step import a_step, step_as_run
from scalescope.scaling.finding.figures import STEADY_STEPS
from scalescope.scaling.findings.shares import bounded_means
from scalescope.scaling.verdicts.step_rows.doubt import was_unsteady

#: Steps that sentences are of, and which are longer or shorter by this share than those of the table, are told apart.
OTHER_STEPS = 0.01

#: Where the mean of a job's steps is so far from their median, that both are told names them.
_MEAN_APART = 0.05
#: A step as run that differs by less from the one as profiled is not shown beside it.
WORTH_SHOWING = 0.02


_BY = {
    "steps": "the job's own steps",
    "given": "the step that was given",
    "metadata": "the steps beside the window, as its traces hold them",
}


def differs(run: RunAnalysis) -> bool:
    """Tell whether a run's step as run is known, and another than the one as profiled, by more than noise."""
    if run.as_run is None or run.as_run.step_ms is None or not run.as_run.ranks or run.replay is None:
        return False
    if run.as_run.replayed_ms is not None:
        return True  # it is the job's own; the profiled steps are told without recording alone
    if run.as_run.source == "given" and run.as_run.reason is None and run.as_run.contradicts is None:
        return True  # who gives a length looks for that one, and takes one that is 1% off for another step's
    if differs_by_noise(run):
        return False
    return abs(run.as_run.step_ms - run.replay.traced_ms) > WORTH_SHOWING * run.replay.traced_ms


def is_shown_alone(run: RunAnalysis) -> bool:
    """Tell whether the step as profiled is not shown beside the one without recording: that is of the same few steps.

    The job's own steps say what a step takes; of the profiled ones one length is enough.
    """
    return run.as_run is not None and run.as_run.replayed_ms is not None


def is_as_measured(run: RunAnalysis) -> bool:
    """Tell whether the step as run is one of those that the job timed: then recording is all that makes the profiled
    ones another, and the parts that are told without it are those of the others, too.

    Of ranks on CPUs it is the job's own step in any case, and what profiled ones differ by is told beside it.
    """
    told, times = run.as_run, run.step_times
    if told is None or times is None or times.measured_step_ms is None or told.step_ms is None or not differs(run):
        return False
    if run.activity == "cpu" or run.growing is not None or told.source not in ("steps", "given"):
        return False
    if told.reason is not None or told.contradicts is not None or was_unsteady(run):
        return False
    return abs(told.step_ms - times.measured_step_ms) < UNLIKE * times.measured_step_ms


def name_of_step(run: RunAnalysis) -> str:
    """Return what the step is called whose parts are shown: as run only where the job had it."""
    return "as run" if is_step_of_job(run.as_run) else "without recording"


def named_length_ms(run: RunAnalysis, parts_ms: float) -> float:
    """Return how long the step is that sentences name whose parts add up to `parts_ms`: the job's own, where they are
    of that one as far as is known. Shares are of it, and so is the throughput.
    """
    told = run.as_run
    own = told is not None and is_shown_alone(run) and is_step_of_job(told)
    return told.step_ms if own and told is not None and told.step_ms is not None else parts_ms


def reads_otherwise(run: RunAnalysis) -> bool:
    """Tell whether the parts that are told add up to another length than the step as run, as both are written."""
    step = interval_of_job(run.as_run).value if run.as_run is not None else 0.0
    return milliseconds(step + beyond_the_job_ms(run.as_run)) != milliseconds(step)


def step_of_job(run: RunAnalysis, where: str = "") -> str:
    """Return the step as run, by the job's own steps, where the parts that are told are of one that is another.

    `where`: what ran it, in words, where there are others.
    """
    told = run.as_run
    if told is None or is_step_of_job(told):
        return ""
    step, beyond = interval_of_job(told), beyond_the_job_ms(told)
    spread = f" ({milliseconds(step.low)} to {milliseconds(step.high)})" if step.low < step.high else ""
    than = f"{percent(abs(beyond) / step.value)} {'longer' if beyond > 0 else 'shorter'}"
    fewer, long = fewer_replayed(run), long_among(run)
    which, take = ("the profiled steps", "take")
    if fewer is not None:
        which, take = (
            f"{fewer.steps} of the {fewer.of} profiled steps{why_fewer(run)}",
            "takes" if fewer.steps == 1 else "take",
        )
    among = between_longer_ones(run) or _in_the_mean(run)
    of_them, than = ("", f", {than}") if long is None else (long.which, "")  # nothing to hold against those between
    return (
        f"{f'On {where}, as' if where else 'As'} run a step takes {milliseconds(step.value)}{spread}"
        f"{among}, by {_BY[told.untraced_by or 'steps']}. What is told of a profiled step is "
        f"of {which}{of_them}, which {take} {milliseconds(step.value + beyond)} without recording{than}."
    )


def _in_the_mean(run: RunAnalysis) -> str:
    """Return what the job's own mean step takes beside its median one, which is the step as run, where a cause is told
    as a share of that; or "".
    """
    told, times = run.as_run, run.step_times
    if told is None or times is None or not times.measured_step_ms or told.step_ms != times.measured_step_ms:
        return ""
    means = {row.ms for one in run.findings for row in one.evidence if row.name == STEADY_STEPS and row.ms}
    apart = [ms for ms in means if abs(ms - told.step_ms) >= _MEAN_APART * told.step_ms]
    return f" in the median and {milliseconds(max(apart))} in the mean" if apart else ""


def differs_by_noise(run: RunAnalysis) -> bool:
    """Tell whether the job's own steps differ by so much that recording may cost nothing, as far as they tell.

    Then a step as run beside the one as profiled would be a third figure for the same step.
    """
    as_run = run.as_run
    if as_run is None or as_run.recording_ms is None or as_run.contradicts is not None:
        return False
    return as_run.source == "steps" and as_run.recording_ms.low <= 0


def shown_step(run: RunAnalysis) -> list[Split]:
    """Return each rank's parts of the mean step that is spoken of: as run where that is another one than as profiled.

    Else, and where the steps that a next one bounds are as long as all of them, those of all profiled steps: sentences
    then hold the figures of the table, of the efficiency and of the panels, and no second one for the same thing.
    """
    told = step_as_run(run)[1] if run.as_run is not None else bounded_means(run)
    whole = [a_step(one, one.steps) for one in run.ranks if one.steps]
    if differs(run) or {one.rank for one in told} != {one.rank for one in whole}:
        return told
    own, all_of_it = (statistics.fmean(one.window_ms for one in ranks) for ranks in (told, whole))
    return whole if abs(own - all_of_it) <= OTHER_STEPS * all_of_it else told


def name_of_shown(run: RunAnalysis) -> str:
    """Return what the step is called that `shown_step` returns, beside one that all of a job's steps tell."""
    return "as profiled" if is_shown_as_profiled(run) else "without recording"


def is_shown_as_profiled(run: RunAnalysis) -> bool:
    """Tell whether the step that `shown_step` returns is of profiled ones with what recording costs in them."""
    known = run.as_run is not None and run.as_run.step_ms is not None and bool(run.as_run.ranks)
    return not known or shown_step(run) != step_as_run(run)[1]


def is_likely(run: RunAnalysis) -> bool:
    """Tell whether the step as run is but the likeliest of a range, which the traces alone leave open."""
    return differs(run) and run.as_run is not None and run.as_run.source == "range"


def as_profiled(run: RunAnalysis) -> str:
    """Return " as profiled" where figures of the trace are other than those of the step that users run; else ""."""
    return " as profiled" if differs(run) else ""


def shown_efficiency(run: RunAnalysis) -> tuple[Efficiency | None, str]:
    """Return the efficiency to show, and of which step it is, in words: "" where recording makes no difference.

    That of the step as run, wherever it is known. Where only a range is, the one as profiled stands, and says so.
    """
    if not differs(run) or run.as_run is None:
        return run.efficiency, ""
    if is_likely(run):
        return run.efficiency, "as profiled, what recording costs included"
    return run.as_run.efficiency, name_of_step(run)
