"""The step as run beside the step as profiled, where recording makes a difference."""

import statistics

from scalescope.records.rows import WIDE
from scalescope.records.steps.unevenness import UNLIKE
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import READS_AS_ZERO_MS, figure, milliseconds, percent
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.report.replayed import between_longer_ones, fewer_replayed, long_among, why_fewer
from scalescope.report.text.codes.evidence import beyond_its_cause_ms
from scalescope.scaling.answer import AsRun, Efficiency, RunAnalysis
from scalescope.scaling.answer_rows import PARTS, Split
from scalescope.scaling.as_run.calibrate import ON_DEVICES
from scalescope.scaling.as_run.of_job import beyond_the_job_ms, interval_of_job, is_step_of_job
from scalescope.scaling.as_run.step import a_step, step_as_run
from scalescope.scaling.finding.kinds import is_late
from scalescope.scaling.findings.of_rows.own_workers import waits_for_workers
from scalescope.scaling.findings.shares import bounded_means
from scalescope.scaling.verdicts.step_rows.doubt import was_unsteady

#: A step as run that differs by less from the one as profiled is not shown beside it.
WORTH_SHOWING = 0.02

#: Steps that sentences are of, and which are longer or shorter by this share than those of the table, are told apart.
OTHER_STEPS = 0.01

#: A step that is told is seen to be longer than the one that was given by more than this share of it.
_SEEN = 0.03
_WHOSE = {
    "steps": "by the job's own steps beside the window",
    "given": "by the step that was given, which the traces can neither confirm nor refute",
    "metadata": "by the untraced steps that the traces tell",
    "range": "if recording costs what it usually does",
    "not_needed": "at whatever recording costs",
}


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
    of_them, than = ("", f", {than}") if long is None else (long.which, "")  # nothing to hold against those between
    return (
        f"{f'On {where}, as' if where else 'As'} run a step takes {milliseconds(step.value)}{spread}"
        f"{between_longer_ones(run)}, by {_BY[told.untraced_by or 'steps']}. What follows is of {which}{of_them}, "
        f"which {take} {milliseconds(step.value + beyond)} without recording{than}."
    )


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
    known = run.as_run is not None and run.as_run.step_ms is not None and bool(run.as_run.ranks)
    return "without recording" if known and shown_step(run) == step_as_run(run)[1] else "as profiled"


def is_likely(run: RunAnalysis) -> bool:
    """Tell whether the step as run is but the likeliest of a range, which the traces alone leave open."""
    return differs(run) and run.as_run is not None and run.as_run.source == "range"


def as_profiled(run: RunAnalysis) -> str:
    """Return " as profiled" where figures of the trace are other than those of the step that users run; else ""."""
    return " as profiled" if differs(run) else ""


def as_run_title(run: RunAnalysis) -> str:
    """Return what stands over the table of the step as run."""
    if not is_step_of_job(run.as_run):
        return "Where a profiled step goes without recording, a rank"
    how = f"likely: {_WHOSE['range']}" if is_likely(run) else "without recording"
    return f"Where a step goes as run, {how}, a rank"


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


def shown_efficiency(run: RunAnalysis) -> tuple[Efficiency | None, str]:
    """Return the efficiency to show, and of which step it is, in words: "" where recording makes no difference.

    That of the step as run, wherever it is known. Where only a range is, the one as profiled stands, and says so.
    """
    if not differs(run) or run.as_run is None:
        return run.efficiency, ""
    if is_likely(run):
        return run.efficiency, "as profiled, what recording costs included"
    return run.as_run.efficiency, name_of_step(run)


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
        taken = run.replay.traced_ms - interval_of_job(told).value - beyond_the_job_ms(told) - told.slowed_ms
        return taken if taken >= READS_AS_ZERO_MS else None  # the replay is off by more than recording takes
    return told.recording_ms.value if differs(run) and not is_likely(run) else None


def _account(run: RunAnalysis, told: AsRun) -> str:
    """Return what recording takes of a profiled step, and what else these are longer by than the job's own.

    How long they are is told beside it: of the lengths of one step two are enough.
    """
    taken, beyond = recording_ms(run), beyond_the_job_ms(told)
    takes = f"takes {milliseconds(taken)} of a profiled step" if taken is not None else "takes too little to show"
    than = f"{milliseconds(abs(beyond))} {'longer' if beyond > 0 else 'shorter'} than the job's own"
    than = "as long as the job's own" if is_step_of_job(told) else than
    if (long := long_among(run)) is not None and not is_step_of_job(told):
        than += long.of(beyond)
    slower, without = slower_by(told), "without it"
    if slower:
        without = "so" if is_step_of_job(told) else "even so"
    if (fewer := fewer_replayed(run)) is not None:  # so that tables of all of them are not laid beside it
        takes = f"takes {milliseconds(taken)} of that" if taken is not None else "takes too little of that to show"
        are = "it is" if fewer.steps == 1 else "they are"
        return f"{fewer.length}: recording {takes}{slower}; {without} {are} {than}."
    return (
        f"Recording {takes}{slower}; {without} {'that is' if is_step_of_job(told) else 'the profiled ones are'} {than}."
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
        f"What is said {'as run ' if differs(run) else ''}is of the steps that can be replayed, {milliseconds(traced)} "
        f"as profiled. {where[:1].upper()}{where[1:]} also has the others, such as a trace's last one."
    )


def _untraced(run: RunAnalysis) -> tuple[AsRun | None, float]:
    """Return the step as run of a run of which an untraced one is told, and that one, ms; else None, and 0."""
    as_run = run.as_run
    return (None, 0.0) if as_run is None or as_run.untraced_ms is None else (as_run, as_run.untraced_ms.value)


def contradiction(run: RunAnalysis) -> str:
    """Return what the traces have against the untraced step that is told; empty where nothing."""
    as_run, untraced = _untraced(run)
    if as_run is None or as_run.contradicts is None:
        return ""
    own = as_run.own_steps_contradict
    whose = "the job's own untraced step of" if own else "the untraced step of"
    whose = "--step-ms" if as_run.untraced_by == "given" else whose
    # how long it is, beside the profiled ones, is told already where the step as run is the job's own
    told = f"{whose} {milliseconds(untraced)} contradicts the traces"
    if own and step_of_job(run) and not (as_run.contradicts == "too_long" and _found_batches_ready(run)):
        return _contradicted_by_own(as_run)
    window = statistics.fmean(one.window_ms / one.steps for one in run.ranks if one.steps)
    traced = milliseconds(as_run.contradicted_ms or (run.replay.traced_ms if run.replay is not None else window))
    where = "in one window" if run.windows > 1 else "there"
    if as_run.contradicts == "too_long":
        why = f"{where} the step takes {traced}, and recording only lengthens it"
    elif (least := as_run.without_recording_ms) is not None:
        step = f"the {traced} step of one window" if run.windows > 1 else f"their {traced} step"
        why = f"without all that recording can cost, {step} still takes {milliseconds(least)}"
        if as_run.contradicted_ms is not None and least > (1 - ON_DEVICES) * as_run.contradicted_ms:
            why = f"{step} is as long whatever recording costs"
    else:
        busy = max(one.compute_ms / one.steps for one in run.ranks if one.steps)
        why = f"there a {'device' if run.activity == 'gpu' else 'rank'} computes for {milliseconds(busy)} of each step"
    if own and as_run.contradicts == "too_long" and _found_batches_ready(run):
        return _while_workers_go_on(run, untraced, traced)
    if own:
        return f"{told}: {why}. The job did not run evenly."
    return f"{told}: {why}. It is another job's, or the job does not run evenly{_allowed(run)}."


def _found_batches_ready(run: RunAnalysis) -> bool:
    """Tell whether late workers of a rank come first, for which it waits longer by all steps than in the profiled."""
    first = next(iter(run.findings), None)
    return first is not None and waits_for_workers(first) and is_late(first) and beyond_its_cause_ms(first) > 0


def _while_workers_go_on(run: RunAnalysis, untraced_ms: float, traced: str) -> str:
    """Return why the job's own steps are longer than those of its traces where a rank's workers set the pace."""
    return (
        f"the job's own untraced step takes {milliseconds(untraced_ms)}, and in the traces {traced}: while the "
        f"profiler starts, the workers of rank {run.findings[0].rank} go on, and the first profiled steps find their "
        "batches ready."
    )


def _contradicted_by_own(as_run: AsRun) -> str:
    """Return that the job's own untraced steps contradict its traces, of lengths that are told beside it."""
    if as_run.contradicts == "too_long":
        why = "they are longer than the profiled ones, which recording only lengthens"
    elif as_run.without_recording_ms is not None:
        why = "they are shorter than the profiled ones are without all that recording can cost"
    else:
        why = "they are shorter than what the profiled ones compute for"
    return f"the job's own untraced steps contradict the traces: {why}. The job did not run evenly."


def beside_what_is_allowed(run: RunAnalysis) -> str:
    """Return that the step that was given is nearly one that the traces allow, and what is told instead; or ""."""
    as_run, given = _untraced(run)
    if as_run is None:
        return ""
    if as_run.reason == "not_reached" and as_run.contradicts is None and as_run.untraced_by == "given":
        told = as_run.step_ms or 0.0
        if given > 0 and told > given * (1 + _SEEN):
            return (
                f"--step-ms {milliseconds(given)} is the mean of steps that differ: the {as_run.steps} that can be "
                f"replayed take {milliseconds(told)}, and the tables are of these."
            )
    if not as_run.nearly_allowed:
        return ""
    long = as_run.contradicts == "too_long"
    end = as_run.allows_to_ms if long else as_run.allows_from_ms
    far = abs(given / end - 1) if end else 0.0
    step = "the profiled steps" if as_run.step_ms is None else f"a step of {milliseconds(as_run.step_ms)}"
    than = "longer" if long else "shorter"
    return (
        f"--step-ms {milliseconds(given)} is {percent(far)} {than} than the traces allow, as a job's steps may be from "
        f"one minute to the next: all that is said is of {step}."
    )


def instead_of_its_own(run: RunAnalysis) -> str:
    """Return that the step that was given is none that the job's own untraced steps have; empty where it may be."""
    as_run, given = _untraced(run)
    if as_run is None or as_run.own_untraced_ms is None:
        return ""
    own = as_run.own_untraced_ms
    told = f"{milliseconds(own.value)} ({milliseconds(own.low)} to {milliseconds(own.high)})"
    if as_run.contradicts is not None:
        return f"The job's own steps without a profiler take {told}."
    return (
        f"--step-ms {milliseconds(given)} stands in place of the job's own steps without a "
        f"profiler, which take {told}. Leave it out to go by those."
    )


def not_reached(run: RunAnalysis) -> str:
    """Return that what is told is not of the step that was given, though the traces do not contradict it; or ""."""
    as_run, given = _untraced(run)
    if as_run is None or as_run.untraced_by != "given" or as_run.contradicts is not None or as_run.step_ms is None:
        return ""
    if as_run.reason == "not_replayed":
        shown = shown_step(run)
        window = statistics.fmean(one.window_ms for one in shown) if shown else given
        if abs(given - window) <= WORTH_SHOWING * window:
            return ""
        return (
            f"--step-ms {milliseconds(given)} is not used: the traces are not replayed as run. All figures are of the "
            f"profiled steps, of {milliseconds(window)}."
        )
    if as_run.reason != "untraced_longer":
        return ""
    return (
        f"--step-ms {milliseconds(given)} is longer than the {milliseconds(as_run.step_ms)} that "
        "the profiled steps come to, by no more than they differ by: all that is said is of those."
    )


def _allowed(run: RunAnalysis) -> str:
    """Return which steps the traces allow in place of one that they contradict, and what to do, after a semicolon."""
    as_run = run.as_run
    if as_run is None or as_run.untraced_by != "given" or as_run.allows_to_ms is None:
        return ""
    low, most, high = as_run.allows_from_ms, as_run.allows_to_ms, milliseconds(as_run.allows_to_ms)
    if low is None:
        bounds = f"{high} at most"
    else:
        bounds = f"{milliseconds(low)} to {high}" if low < (1 - ON_DEVICES) * most else f"about {high}"
    return f"; the traces allow {bounds}: give a step of this very job, or leave --step-ms out"
