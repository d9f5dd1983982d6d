"""What is to be known of a run's reference, beside how much longer a step is, in sentences."""

from collections.abc import Sequence

from scalescope.report.drawing.numbers import WIDE, capitalized, listing, milliseconds, quoted, rank_names
from scalescope.report.text.findings import cost, name, subject, verb
from scalescope.report.text.late.places import changed_places
from scalescope.report.text.recurring import recurring_words
from scalescope.report.text.samples import as_they_are
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import OtherWork
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.finding_list import told_of
from scalescope.scaling.verdicts.reference import CONFIRMS, is_not_in_reference, is_sure, parts_of

_MOST_GONE = 4  # as many as a comparison names: the first one, and what stands beside it


def reference_sentences(run: RunAnalysis) -> list[str]:
    """Return of which ranks a reference is, how its user called the job, which ranks changed places, and how it shares
    samples out.
    """
    loss = run.lost[0]
    told = [_of_ranks(run)] if loss.reference_lacks else []
    if loss.other_names is not None:
        from scalescope.scaling.compare.alike.same_work import named_otherwise  # only a comparison takes it

        told.append(f"{capitalized(named_otherwise(loss.other_names))}.")
    if loss.places is not None:
        told.append(f"{changed_places(loss.places)}.")
    if loss.samples is not None:
        told.append(f"{capitalized(as_they_are(loss.samples))}.")
    return told


def gone_clause(run: RunAnalysis) -> str:
    """Return what cost the reference a step and is gone; "" where nothing is for sure. No full stop."""
    gone = run.lost[0].gone[:_MOST_GONE] if run.lost else []
    if not gone:
        return ""
    several = len(gone) > 1  # causes of one rank are told apart by what they are
    told = [f"{who_of(one) if several else subject(one)} {verb(one)} a step {cost(one, even=True)}" for one in gone]
    return f"in {quoted(run.lost[0].reference)}, and not in {quoted(run.name)}, {listing(told)}"


def come_clause(run: RunAnalysis) -> str:
    """Return what costs the run a step, and not its reference, where the run's first cause is another; else "". No full
    stop.
    """
    come = run.lost[0].come[:_MOST_GONE] if run.lost else []
    if not come:
        return ""
    told = [f"{who_of(one)} {verb(one)} a step {cost(one, even=True)}" for one in come]
    return f"in {quoted(run.name)}, and not in {quoted(run.lost[0].reference)}, {listing(told)}"


def who_of(finding: Finding) -> str:
    """Return who or what costs a step: of a rank, with what it is."""
    who = subject(finding)
    return f"{who}, {name(finding)}," if ranks_of(finding) and who != name(finding) else who


def parts_verdict(whole: Sequence[str], counted: Sequence[str]) -> str:
    """Return which parts of a step changed beyond noise, and of which no more is sure than what is launched more, or
    less; "" where none is either. No full stop. A comparison and an analysis beside a reference say it by this alone.
    """
    if not whole:
        sure = f"Of the parts, what is launched more, or less, is sure ({', '.join(counted)})"
        return f"{sure}; each as a whole changed within noise" if counted else ""
    besides = f"; what is launched more, or less, is sure besides ({', '.join(counted)})" if counted else ""
    return f"Beyond noise {listing(list(whole))} changed{besides}"


def gone_sentences(run: RunAnalysis, *, own: bool = False) -> list[str]:
    """Return what cost the reference a step and is gone, where the first sentence does not tell it: it does of a step
    that changed within noise, unless that is of a cause of the run's `own`.
    """
    told = gone_clause(run)
    is_told = run.lost[0].within_noise and run.lost[0].as_measured is None and not own
    return [f"{capitalized(told)}."] if told and not is_told else []


def recurs_beside(run: RunAnalysis) -> str:
    """Return what steps that recur cost more, or less, than the reference's, where that is beyond noise: those that one
    of both has and the other has not, too; "" where they cost as much, or one ran too short to tell. No full stop.
    """
    one = run.lost[0].recurring if run.lost else None
    return (
        recurring_words(one, quoted(run.lost[0].reference), quoted(run.name)) if one is not None and one.differs else ""
    )


def recurs_first(run: RunAnalysis) -> bool:
    """Tell whether a run beside its reference begins with steps that recur, as a comparison of both does: they cost
    more than the step between them changed by, or than all else that is sure where noise may hide much of that change.
    """
    loss = run.lost[0]
    change, low, high, one = loss.step_change_ms, loss.step_low_ms, loss.step_high_ms, loss.recurring
    if one is None or not one.differs or change is None or low is None or high is None:
        return False
    wide = loss.within_noise and max(-low, high) > WIDE * loss.compared_step_ms
    own = [cause.ms or 0.0 for cause in (*loss.come[:1], *run.findings[:1]) if is_not_in_reference(cause)]
    besides = [*own, *(cause.ms or 0.0 for cause in loss.gone), *(abs(part.change_ms) for part in loss.sure_parts)]
    return (wide or abs(one.change_ms) > abs(change)) and abs(one.change_ms) > max(besides, default=0.0)


def figures_sentence(run: RunAnalysis) -> str:
    """Return what the figures of one change are of, where a cause that one of both runs has for sure is told beside
    that: by how much steps differ, what the cause costs, and what the profiled steps' parts are.
    """
    loss = run.lost[0]
    change = loss.step_change_ms
    if change is None or loss.within_noise or loss.as_measured is not None:
        return ""
    mine, causes = (run.name, run.findings[:1]) if change > 0 else (loss.reference, loss.gone[:1])
    cause = next((one for one in causes if is_sure(one) and ranks_of(one)), None)
    if cause is None or not CONFIRMS * (cause.ms or 0.0) <= abs(change):
        return ""
    which = "medians without a profiler" if loss.from_measured_ms is not None else "steps"
    return (
        f"{capitalized(milliseconds(abs(change)))} is what the two {which} differ by, whatever made that, and "
        f"{milliseconds(cause.ms or 0.0)} what {quoted(mine)}'s step would be shorter by without that cause alone, as "
        "run; parts, as in the table, are of profiled steps, recording included."
    )


def is_of_the_gone(run: RunAnalysis, part: str, change_ms: float) -> bool:
    """Tell whether a part is shorter by what is gone."""
    return change_ms < 0 and any(part in parts_of(one) for one in run.lost[0].gone[:_MOST_GONE])


def told_cause(run: RunAnalysis) -> Finding | None:
    """Return the cause beside which it is told how a run's step compares with its reference's; None for none."""
    return next(iter((*run.lost[0].come, *run.findings)), None)


def outweighed_by(run: RunAnalysis, told: Sequence[tuple[OtherWork, str]]) -> str:
    """Return that what a step does besides takes longer than the cause that is told first costs: the longest of what
    is `told`, which is counted, in words; "" where none does.
    """
    cause = told_cause(run)
    if cause is None:
        return ""
    own = [(abs(one.change_ms), words) for one, words in told if one.part not in parts_of(cause)]
    longest_ms, words = max(own, default=(0.0, ""))
    if longest_ms <= (cause.ms or 0.0):
        return ""
    several = len(run.lost[0].come or [one for one in told_of(run) if one.ms]) > 1
    return f"; the {words} are more than {'the first of these causes' if several else 'that cause'} costs"


def _of_ranks(run: RunAnalysis) -> str:
    """Return that a reference holds some ranks' traces alone, and what that leaves untold."""
    loss, compared = run.lost[0], [one.rank for one in run.lost]
    lacks = rank_names(loss.reference_lacks)
    return (
        f"{quoted(loss.reference)} has no trace of {lacks}, of {run.world_size} ranks: who waits for whom is not "
        f"known there, so waits cannot be compared, and the parts of a step only on {rank_names(compared)}."
    )
