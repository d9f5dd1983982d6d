"""A finding of a window's few longer steps that is what steps longer every so often do: one cause, told once."""

from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import StepSplit
from scalescope.scaling.answer_steps import RecurringSteps
from scalescope.scaling.finding import IN_STEPS, Finding, is_late, is_of_steady_steps

#: One cause takes about as long in the profiled steps as in all: within so many times.
_AS_LONG = 2.0


def without_recurring(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return the findings without those that say what the steps that recur do: the costliest is then told of these.

    All steps tell what they cost in the mean: a window has more or fewer of them than come to it.
    """
    found = analysis.recurring
    if found is None or not found.is_worth_a_word:
        return list(findings)
    same = [one for one in findings if _is_what_they_do(one, found, analysis)]
    if not same:
        return list(findings)
    analysis.recurring = replace(found, doing=same[0])
    return [one for one in findings if one not in same]


def _is_what_they_do(one: Finding, found: RecurringSteps, analysis: RunAnalysis) -> bool:
    """Tell whether a finding is in the very steps that recur, on their rank, and takes about as long."""
    row = next((row for row in one.evidence if row.name == IN_STEPS), None)
    if row is None or row.ms is None or row.calls is None or row.value is None or row.calls >= row.value:
        return False
    if one.ms is None or one.ranks or is_of_steady_steps(one) or is_late(one):
        return False
    if len(analysis.ranks) > 1 and found.rank not in (one.rank, None):  # where all wait in mid-step rows tell no rank
        return False
    if not found.longer_ms / _AS_LONG <= row.ms <= found.longer_ms * _AS_LONG:
        return False
    own: dict[int, float] = {}
    for split in analysis.steps:
        if one.rank in (split.rank, None):
            own[split.step] = own.get(split.step, 0.0) + _by_itself_ms(split)
    longest = sorted(own, key=lambda step: -own[step])[: round(row.calls)]
    return set(longest) == {step for step in own if step % found.every == found.phase}


def _by_itself_ms(split: StepSplit) -> float:
    """Return how long a rank is busy with what no other rank holds up."""
    return split.window_ms - split.exposed_transfer_ms - split.exposed_wait_ms - split.exposed_unsplit_ms
