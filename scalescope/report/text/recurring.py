"""Steps that are longer every so often, in words: how often, by how much, and how many of them were recorded."""

from scalescope.report.drawing.numbers import milliseconds, ordinal
from scalescope.scaling.answer import RecurringSteps, RunAnalysis
from scalescope.scaling.finding import is_late, is_now_and_then, is_of_steady_steps, is_within_noise, weight

#: What costs less of a step, in the mean, is not worth a word.
_LEAST = 0.01


def leads(run: RunAnalysis) -> bool:
    """Tell whether they cost more than anything that the profiled steps tell for sure."""
    found = run.recurring
    if found is None or not is_told(run):
        return False
    first = next((one for one in run.findings[:1] if one.ms is not None), None)
    if first is not None and is_late(first) and first.code == "data_loading":
        return False  # which is of all steps, these among them
    in_the_window = first is not None and is_now_and_then(first) and not is_of_steady_steps(first)
    return first is None or in_the_window or is_within_noise(first) or found.mean_ms > weight(first)


def is_told(run: RunAnalysis) -> bool:
    """Tell whether they cost enough to be worth a word."""
    return run.recurring is not None and run.recurring.mean_ms >= _LEAST * run.recurring.usual_ms


def recurring_clause(run: RunAnalysis, found: RecurringSteps) -> str:
    """Return which steps are longer, without a full stop."""
    what = f"every {ordinal(found.every)} step takes {milliseconds(found.longer_ms)} longer than the others"
    whose = f", for what rank {found.rank} does before the others go on" if found.rank is not None else ""
    mean = f"{milliseconds(found.mean_ms)} a step in the mean"
    return f"{what}' {milliseconds(found.usual_ms)}{whose}: {mean}, {_recorded(run, found)}"


def recurring_advice(found: RecurringSteps) -> str:
    """Return what to do about them."""
    return (
        f"see what every {ordinal(found.every)} step does beside training (validation, saving, logging, "
        "waiting for batches that come several at a time), "
        f"and do it less often or in the background: at most {milliseconds(found.mean_ms)} a step"
    )


def pace(found: RecurringSteps) -> float:
    """Return the throughput of all steps over that of those between."""
    return found.usual_ms / (found.usual_ms + found.mean_ms)


def _recorded(run: RunAnalysis, found: RecurringSteps) -> str:
    recorded = {one.step for one in run.steps}
    begun = sum(step % found.every == found.phase for step in recorded)
    if not recorded:
        return "by the job's own clock"
    number = str(begun) if begun else "none"
    return f"and {number} of the {len(recorded)} profiled steps {'are' if begun > 1 else 'is'} such a one"
