"""A step that was given: what the traces have against it, and what is told instead."""

import statistics

from scalescope.report.as_run.shown import WORTH_SHOWING, shown_step, step_of_job
from scalescope.report.drawing.numbers import milliseconds, percent
from scalescope.report.text.codes.evidence import beyond_its_cause_ms, row_of
from scalescope.scaling.answer import AsRun, RunAnalysis
from scalescope.scaling.as_run.calibrate import ON_DEVICES
from scalescope.scaling.finding.figures import IN_STEPS
from scalescope.scaling.finding.kinds import is_late
from scalescope.scaling.findings.of_rows.own_workers import waits_for_workers

#: A step that is told is seen to be longer than the one that was given by more than this share of it.
_SEEN = 0.03
#: Why profiled steps of ranks on CPUs may be longer than any model of recording has it (benchmarks/page_faults.py).
_BY_PAGES = "recording took memory in whose place the job's steps need fresh pages, which no record tells"


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
        return _contradicted_by_own(as_run, on_cpus=run.activity == "cpu")
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
    return f"{told}: {why}. It is another job's, {_or_uneven(run)}{_allowed(run)}."


def _or_uneven(run: RunAnalysis) -> str:
    """Return what else a step may be that contradicts the traces: a mean of which fewer steps are long, or uneven."""
    row = next((row for one in run.findings if (row := row_of(one, IN_STEPS)) is not None), None)
    too_long = run.as_run is not None and run.as_run.contradicts == "too_long"
    if too_long or row is None or row.ms is None or row.calls is None or row.value is None:
        if not too_long and run.activity == "cpu":
            return f"the job does not run evenly, or {_BY_PAGES}"
        return "or the job does not run evenly"
    return (
        f"or a mean with fewer long steps than the traces have: in {row.calls:.0f} of {row.value:.0f} of these the "
        f"step is {milliseconds(row.ms)} longer"
    )


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


def _contradicted_by_own(as_run: AsRun, *, on_cpus: bool) -> str:
    """Return that the job's own untraced steps contradict its traces, of lengths that are told beside it."""
    if as_run.contradicts == "too_long":
        why = "they are longer than the profiled ones, which recording only lengthens"
    elif as_run.without_recording_ms is not None:
        why = "they are shorter than the profiled ones are without all that recording can cost"
    else:
        why = "they are shorter than what the profiled ones compute for"
    pages = f", or {_BY_PAGES}" if as_run.contradicts != "too_long" and on_cpus else ""
    return f"the job's own untraced steps contradict the traces: {why}. The job did not run evenly{pages}."


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
    limit = (as_run.allows_to_ms if long else as_run.allows_from_ms) or 0.0
    far = abs(given / limit - 1) if limit else 0.0
    step = "the profiled steps" if as_run.step_ms is None else f"a step of {milliseconds(as_run.step_ms)}"
    if own := _own_untraced(run):
        step += f"; the job's own untraced steps take {own}"
    than, end = ("longer", "most") if long else ("shorter", "least")
    allowed = f"the {milliseconds(limit)} that the traces allow at {end}"
    return (
        f"--step-ms {milliseconds(given)} is {percent(far)} {than} than {allowed}, as a job's steps may be from one "
        f"minute to the next, and is not used: all that is said is of {step}."
    )


def _own_untraced(run: RunAnalysis) -> str:
    """Return how long the job's own untraced steps are where another one was given, with the interval; else ""."""
    own = run.as_run.own_untraced_ms if run.as_run is not None else None
    return "" if own is None else f"{milliseconds(own.value)} ({milliseconds(own.low)} to {milliseconds(own.high)})"


def instead_of_its_own(run: RunAnalysis) -> str:
    """Return that the step that was given is none that the job's own untraced steps have; empty where it may be."""
    as_run, given = _untraced(run)
    told = _own_untraced(run)
    if as_run is None or not told or as_run.nearly_allowed:
        return ""
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
