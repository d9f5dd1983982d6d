"""What recording cost the step as profiled, and by what the step without it is known."""

import statistics

from scalescope.records.rows import WIDE
from scalescope.report.as_run.shown import (
    OTHER_STEPS,
    differs,
    is_as_measured,
    is_likely,
    is_shown_alone,
    reads_otherwise,
    shown_step,
)
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import READS_AS_ZERO_MS, figure, milliseconds
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.report.replayed import fewer_replayed, long_among
from scalescope.scaling.answer import AsRun, RunAnalysis
from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.as_run.of_job import (
    beyond_the_job_ms,
    interval_of_job,
    is_of_other_length,
    is_step_of_job,
    recording_by_own_steps,
)
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.costs.interval import Interval

_WHOSE = {
    "steps": "by the job's own steps beside the window",
    "given": "by the step that was given, which the traces can neither confirm nor refute",
    "metadata": "by the untraced steps that the traces tell",
    "range": "if recording costs what it usually does",
    "not_needed": "at whatever recording costs",
}


def as_run_title(run: RunAnalysis) -> str:
    """Return what stands over the table of the step as run."""
    if not is_step_of_job(run.as_run) or reads_otherwise(run):
        return "Where a profiled step goes without recording, a rank"
    how = f"likely: {_WHOSE['range']}" if is_likely(run) else "without recording"
    return f"Where a step goes as run, {how}, a rank"


def partition_title(run: RunAnalysis) -> str:
    """Return what stands over the table of all profiled steps: of which steps it is, where sentences are of others."""
    if run.steps_by is None:
        return "What was recorded, a rank"
    if differs(run):
        return "Where a profiled step goes, recording included, a rank"
    told, whole = shown_step(run), [one.window_ms / one.steps for one in run.ranks if one.steps]
    if not told or not whole:
        return "Where a step goes, a rank"
    spoken_ms, all_ms = statistics.fmean(one.window_ms for one in told), statistics.fmean(whole)
    others = abs(spoken_ms - all_ms) > OTHER_STEPS * all_ms
    return f"Where a {'profiled ' * others}step goes{', in the mean of all of them' * others}, a rank"


def as_run_table(run: RunAnalysis) -> Table:
    """One row a rank: the parts of its mean step as run, in ms, which add up to the step."""
    columns = [
        Column("rank", "rank", digits=0),
        Column("window_ms", "step", "ms", 2),
        *(Column(f"{part.key}_ms", part.name, "ms", 2) for part in parts.ALL),
    ]
    _, ranks = step_as_run(run)
    rows: list[list[Cell]] = [[one.rank, one.window_ms, *(one.part_ms(part) for part in PARTS)] for one in ranks]
    return Table(columns, rows)


def as_run_sentence(run: RunAnalysis) -> str:
    """Return what recording costs the step, how that is known, and what would tell more; empty where it does not."""
    as_run = run.as_run
    if as_run is not None and as_run.reason == "apart":
        told = as_run.untraced_ms
        given = "" if told is None else f", and without a profiler a step takes {milliseconds(told.value)}"
        return (
            "What recording costs is not taken out: the traces replayed without it give a step that is further from "
            f"the profiled one than recording can make it. All figures are of the profiled steps{given}."
        )
    if as_run is None or as_run.recording_ms is None or as_run.step_ms is None:
        return ""
    if run.replay is None or not differs(run):
        return ""
    traced = milliseconds(run.replay.traced_ms)
    if as_run.replayed_ms is not None:
        return _account(run, as_run)
    if is_likely(run):
        return (
            f"Recording may cost {figure(as_run.recording_ms.low, 1)} to {figure(as_run.recording_ms.high, 1)} ms of "
            f"the {traced} step: as run it takes {figure(as_run.low_ms or 0, 1)} to {figure(as_run.high_ms or 0, 1)} "
            "ms. A step without a profiler tells: --step-ms."
        )
    whose = _WHOSE[as_run.source] if as_run.contradicts is None else "which is as near as it gets to the one told"
    if as_run.contradicts is None and as_run.reason == "not_reached" and as_run.untraced_ms is not None:
        untraced = milliseconds(as_run.untraced_ms.value)
        whose = f"which is as near as it gets to the {untraced} of a step without a profiler"
    if abs(as_run.recording_ms.value) < READS_AS_ZERO_MS:
        return f"As run a step takes {milliseconds(as_run.step_ms)}, {whose}: it is not recording that makes it differ."
    return (
        f"Recording costs {milliseconds(as_run.recording_ms.value)} of the {traced} step{slower_by(as_run)}: as run it "
        f"takes {milliseconds(as_run.step_ms)}{_between(as_run)}, {whose}{_all_measured(run)}."
    )


def _between(told: AsRun) -> str:
    """Return what the step as run is known to lie between, where that is wide: a figure alone would say more."""
    step, low, high = told.step_ms or 0.0, told.low_ms, told.high_ms
    if low is None or high is None or high - low <= 2 * WIDE * step:
        return ""
    return f" ({milliseconds(low)} to {milliseconds(high)})"


def _all_measured(run: RunAnalysis) -> str:
    """Return what all of the job's own steps take, to end a sentence with; "" where the step as run is like them."""
    told, times = run.as_run, run.step_times
    if told is None or times is None or not is_as_measured(run):
        return ""
    step, measured = told.step_ms or 0.0, times.measured_step_ms or 0.0
    if abs(step - measured) <= OTHER_STEPS * measured:
        return ""
    return f"; all {times.measured_steps} steady steps take {milliseconds(measured)} in the median"


def recording_ms(run: RunAnalysis) -> float | None:
    """Return what recording takes of a profiled step, ms, as the replay without it tells; None where it does not.

    There is no other figure for it: by how much profiled steps are longer than others has other reasons as well.
    """
    told = run.as_run
    if run.replay is None or told is None or told.step_ms is None or told.recording_ms is None:
        return None
    if told.replayed_ms is not None:  # of the profiled steps; what these are longer by than the job's own is no part
        if (bound := _by_own_steps(run)) is not None:
            return bound.value if bound.low >= READS_AS_ZERO_MS else None
        taken = run.replay.traced_ms - interval_of_job(told).value - beyond_the_job_ms(told) - told.slowed_ms
        return taken if taken >= READS_AS_ZERO_MS else None  # the replay is off by more than recording takes
    return told.recording_ms.value if differs(run) and not is_likely(run) else None


def _by_own_steps(run: RunAnalysis) -> Interval | None:
    """Return what the job's own steps leave to recording, ms, as far as a stretch of them may lie off the others; None
    where its terms come to no more.
    """
    bound = recording_by_own_steps(run.as_run, run.replay.traced_ms) if run.replay is not None else None
    beside = run.step_times.placebo_ms or 0.0 if run.step_times is not None else 0.0
    return None if bound is None else Interval(bound.value, bound.low - beside, bound.high + beside)


def by_own_steps(run: RunAnalysis) -> str:
    """Return behind what recording takes of a profiled step, that the job's own steps say so, and how surely; "" where
    its terms do.
    """
    bound = _by_own_steps(run)
    if bound is None:
        return ""
    return f" ({milliseconds(bound.low)} to {milliseconds(bound.high)}, by the job's own steps)"


def unmeasured(run: RunAnalysis) -> str:
    """Return that what recording takes of a profiled step cannot be measured, without a full stop, where what its terms
    come to would leave those shorter than the job's own, and these tell no cost; else "".
    """
    told = run.as_run
    if told is None or run.replay is None or recording_ms(run) is not None:
        return ""
    bound = _by_own_steps(run)
    if bound is None:
        return ""
    terms = run.replay.traced_ms - interval_of_job(told).value - beyond_the_job_ms(told)
    if bound.value < 0:  # nothing takes less than no time: the profiled steps are shorter for another reason
        return (
            "What recording takes of a profiled step cannot be measured: recorded steps are "
            f"{milliseconds(-bound.value)} shorter than the job's own ({milliseconds(-bound.high)} to "
            f"{milliseconds(-bound.low)}), and so many operators usually cost {milliseconds(terms)}"
        )
    return (
        f"What recording takes of a profiled step cannot be measured: recorded steps are {milliseconds(bound.value)} "
        f"longer than the job's own ({milliseconds(bound.low)} to {milliseconds(bound.high)}), and so many operators "
        f"usually cost {milliseconds(terms)}"
    )


def _account(run: RunAnalysis, told: AsRun) -> str:
    """Return what recording takes of a profiled step, and what else these are longer by than the job's own.

    How long they are is told beside it: of the lengths of one step two are enough.
    """
    taken, beyond = recording_ms(run), beyond_the_job_ms(told)
    sure = by_own_steps(run) if taken is not None else ""
    takes = f"takes {milliseconds(taken)}{sure} of a profiled step" if taken is not None else "takes too little to show"
    than = f"{milliseconds(abs(beyond))} {'longer' if beyond > 0 else 'shorter'} than the job's own"
    than = f"as long as the job's own{_as_known(told)}" if is_step_of_job(told) else than
    if (long := long_among(run)) is not None and not is_step_of_job(told):
        than += long.of(beyond)
    slower, without = slower_by(told), "without it"
    if slower:
        without = "so" if is_step_of_job(told) else "even so"
    fewer = fewer_replayed(run)
    if by_terms := unmeasured(run):
        of = f"{fewer.length}. " if fewer is not None else ""
        return f"{of}{by_terms}; without these they are {than}."
    if fewer is not None:  # so that tables of all of them are not laid beside it
        takes = (
            f"takes {milliseconds(taken)}{sure} of that" if taken is not None else "takes too little of that to show"
        )
        are = "it is" if fewer.steps == 1 else "they are"
        return f"{fewer.length}: recording {takes}{slower}; {without} {are} {than}."
    return (
        f"Recording {takes}{slower}; {without} {'that is' if is_step_of_job(told) else 'the profiled ones are'} {than}."
    )


def _as_known(told: AsRun) -> str:
    """Return how far two lengths are known that are as long, where they are told as two; else ""."""
    if not is_of_other_length(told):
        return ""
    step = interval_of_job(told)
    return (
        f", as far as that is known ({milliseconds(step.value + beyond_the_job_ms(told))} for "
        f"{milliseconds(step.low)} to {milliseconds(step.high)})"
    )


def slower_by(told: AsRun) -> str:
    """Return by how much a profiled step's operators took longer than the job's own, and how they are told; or ""."""
    if told.slowed_ms < READS_AS_ZERO_MS:
        return ""
    whose = "the steps beside them" if told.untraced_by == "metadata" else "the job's own steps"
    return f"; operators took {milliseconds(told.slowed_ms)} longer than in {whose}, and are told at their pace"


def of_other_steps(run: RunAnalysis, where: str, least: float) -> str:
    """Return that what is said of a step is of other steps than all that were profiled, `where` those are; else "".

    `least`: the share of the step from which on that is worth a word.
    """
    if run.replay is None or run.as_run is None or run.as_run.step_ms is None or not run.as_run.ranks:
        return ""
    if is_shown_alone(run):
        return ""
    profiled = statistics.fmean(one.window_ms / max(one.steps, 1) for one in run.ranks)
    traced = run.replay.traced_ms
    if abs(profiled - traced) <= least * profiled:
        return ""
    return (
        f"What is said {'as run ' if differs(run) else ''}is of the steps whose end a next one tells, "
        f"{milliseconds(traced)} as profiled. {where[:1].upper()}{where[1:]} also has the others, such as a "
        "trace's last one."
    )
