"""Steps that are longer every so often, in words: how often, by how much, and how many of them were recorded."""

from scalescope.records.console import counted
from scalescope.report.drawing.numbers import capitalized, milliseconds, ordinal
from scalescope.report.text.cures import cure_text
from scalescope.report.text.findings import because, headline
from scalescope.report.text.long import with_cause
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import RecurringSteps
from scalescope.scaling.finding import EXPOSED, IDLE


def is_told(run: RunAnalysis) -> bool:
    """Tell whether they cost enough to be worth a word."""
    return run.recurring is not None and run.recurring.is_worth_a_word


def recurring_clause(found: RecurringSteps) -> str:
    """Return which steps are longer, and what that costs, without a full stop."""
    what = f"every {ordinal(found.every)} step takes {_longer(found)} longer than the others"
    whose = f", for what rank {found.rank} does before the others go on" if found.rank is not None else ""
    return f"{what}' {milliseconds(found.usual_ms)}{whose}: {milliseconds(found.mean_ms)} a step in the mean"


def _longer(found: RecurringSteps) -> str:
    """Return by how much, with its interval where that is known and wide enough to be seen."""
    longer = milliseconds(found.longer_ms)
    if found.longer_low_ms is None or found.longer_high_ms is None:
        return longer
    low, high = milliseconds(found.longer_low_ms), milliseconds(found.longer_high_ms)
    return longer if low == high else f"{longer} ({low} to {high})"


def recurring_sentence(run: RunAnalysis, found: RecurringSteps) -> str:
    """Return the same with how many of them were recorded, in a sentence."""
    recorded = recorded_of(run, found)
    clause = capitalized(recurring_clause(found))
    return (
        f"{clause}. {capitalized(with_doing(recorded, found))}." if recorded else f"{clause}, by the job's own clock."
    )


def with_doing(told: str, found: RecurringSteps) -> str:
    """Return what is told of them, and what a window shows them to do, where one does; without a full stop."""
    if found.doing is None:
        return told
    where = f"on rank {found.doing.rank}, " if found.doing.rank is not None else ""
    return with_cause(told, f"{where}{because(found.doing)}")


def recurring_advice(found: RecurringSteps) -> str:
    """Return what to do about them."""
    known = found.doing.remedy if found.doing is not None else None
    if known is not None and known.cure == "collect_less":
        return f"{cure_text(known)}: at most {milliseconds(found.mean_ms)} a step"
    return (
        f"see what every {ordinal(found.every)} step does beside training (validation, saving, logging, "
        "loading several batches at once), "
        f"and do it less often or in the background: at most {milliseconds(found.mean_ms)} a step"
    )


def pace(found: RecurringSteps) -> float:
    """Return the throughput of all steps over that of those between."""
    return found.usual_ms / (found.usual_ms + found.mean_ms)


def longer_by_ms(run: RunAnalysis) -> float:
    """Return by how much the mean profiled step is longer for those among them that are longer every so often, ms."""
    if run.recurring is None or not run.steps:
        return 0.0
    recorded, begun = _recorded(run, run.recurring)
    return run.recurring.longer_ms * begun / recorded


def long_ones(run: RunAnalysis, found: RecurringSteps) -> str:
    """Return how many of the profiled steps are longer, where that is why these are."""
    recorded, begun = _recorded(run, found)
    one = "is one" if begun == 1 else "are some"
    return f"{begun} of the {recorded} {one} of the long ones, as every {ordinal(found.every)} step is"


def _recorded(run: RunAnalysis, found: RecurringSteps) -> tuple[int, int]:
    """Return how many steps are profiled, and with how many of them such a longer one begins."""
    recorded = {one.step for one in run.steps}
    return len(recorded), sum(step % found.every == found.phase for step in recorded)


def recorded_of(run: RunAnalysis, found: RecurringSteps) -> str:
    """Return how many of the profiled steps are such; "" where none is profiled."""
    recorded, begun = _recorded(run, found)
    if not recorded:
        return ""
    of_all = f"of the {counted(recorded, 'profiled step')} " if recorded > 1 else "profiled step "
    number = ("the one " if begun else "no ") if recorded == 1 else f"{begun or 'none'} "
    return f"{number}{of_all}{'are' if begun > 1 else 'is'} such a one"


def beside_recurring(run: RunAnalysis) -> str:
    """Return what the profiled steps tell beside those that recur, where these are among them and nothing else is
    found; "" where it is not so.

    The other ranks' wait for one that saves is communication that nothing hides, and its cause is found.
    """
    first = next(iter(run.findings), None)
    if first is None or first.code != "nothing" or run.recurring is None or not _recorded(run, run.recurring)[1]:
        return ""
    if any(row.name in (EXPOSED, IDLE) for row in first.evidence):
        return ""  # which is what is left beside theirs
    return f"Beside that {headline(first, 0.0, run.world_size)}"
