"""What is told of a run beside its reference: first, as that was asked, and what it is by itself behind that."""

from scalescope.report.drawing.numbers import capitalized, quoted
from scalescope.report.panels.lost import beside_cause, lost_clause
from scalescope.report.text.reference import (
    come_clause,
    figures_sentence,
    gone_sentences,
    recurs_beside,
    recurs_first,
    reference_sentences,
)
from scalescope.report.verdict.level import LossOfStep, level_beside
from scalescope.report.verdict.told import Told
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.findings.of_rows.recurring import leads
from scalescope.scaling.verdicts.reference import is_not_in_reference
from scalescope.scaling.verdicts.step_rows.doubt import is_doubtful


def add_lost(run: RunAnalysis, told: Told, loss: LossOfStep) -> None:
    """Say first how a run compares with its reference: that is what was asked. What it is by itself comes next."""
    if run.lost:
        come = come_clause(run) if _may_begin_with_a_cause(run, told) else ""
        told.explained[:0] = [] if come else come_sentences(run)
        by_causes = bool(come) or has_a_cause_of_its_own(run, told)
        apart = "" if by_causes else figures_sentence(run)
        told.explained[:0] = [*gone_sentences(run, own=by_causes), *([apart] if apart else [])]
        often = [] if run.recurring is not None and leads(run) else recurs_sentences(run)  # … which is told by the rows
        first = bool(often) and recurs_first(run)
        told.explained[:0] = [] if first else often
        if come:  # the run's own causes stay in their order, behind
            beside = capitalized(beside_cause(run))
            told.headline = f"{come}. {beside}. By its own steps alone: {told.headline}"
        elif by_causes:
            add_none_such(run, told)
            told.headline = f"{told.headline} {capitalized(beside_cause(run))}."
        else:
            told.headline = f"{lost_clause(run)}. By its own steps alone: {told.headline}"
        if first:
            told.headline = f"{often[0]} Between these steps, {told.headline}"
        add_of_lost(run, told)
        if told.level != "unknown":  # … for reasons that hold beside a reference as well
            told.level = level_beside(run, loss, by_causes=by_causes)
        told.is_beside = True


def add_none_such(run: RunAnalysis, told: Told) -> None:
    """Say of the first cause that a reference has none such, before what is told beside it, which it may well have."""
    # a reference may be several runs: what is said of it fits one and many
    none_such = f"There is no such cause in {quoted(run.lost[0].reference)}."
    whole = told.first(none_such) if told.first is not None else f"{told.headline} {none_such}"
    told.headline = f"{whole} {told.besides}".rstrip()


def come_sentences(run: RunAnalysis) -> list[str]:
    """Return what costs the run and not its reference, as a sentence; none where its first cause tells that."""
    return [f"{capitalized(told)}."] if (told := come_clause(run)) else []


def recurs_sentences(run: RunAnalysis) -> list[str]:
    """Return what steps that recur cost more or less than the reference's, as a sentence; none where they do not."""
    return [f"{told}."] if (told := recurs_beside(run)) else []


def add_of_lost(run: RunAnalysis, told: Told) -> None:
    """Say what else is to be known of a run beside its reference."""
    told.explained += reference_sentences(run)


def has_a_cause_of_its_own(run: RunAnalysis, told: Told) -> bool:
    """Tell whether the cause that is told first is there for sure, and not in a reference whose parts tell less."""
    if told.has_lead or not run.findings or not _may_begin_with_a_cause(run, told):
        return False
    return is_not_in_reference(run.findings[0])


def _may_begin_with_a_cause(run: RunAnalysis, told: Told) -> bool:
    """Tell whether a run beside its reference may begin with a cause that the reference has not."""
    return run.longer is None and not is_doubtful(run) and told.level != "unknown"
