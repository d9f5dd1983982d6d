"""A comparison's first sentence where a cause is sure of one side alone: what it costs, once, before the whole step.

What that cause does is also a part that changed, more kernels, and a rank that the others wait for: each another
measure of one thing, which is told by the cause.
"""

from msgspec.structs import replace

from scalescope.report.compare.amounts import more_kernels
from scalescope.report.compare.parts import moved
from scalescope.report.compare.standing import NO_TRIFLE
from scalescope.report.compare.sure import most_sure_ms, sure_sentences
from scalescope.report.drawing.numbers import WIDE, listing, milliseconds
from scalescope.report.text.findings import because, cost, subject, verb
from scalescope.report.text.late.together import provided
from scalescope.report.text.long import one_or_two
from scalescope.report.text.reference import who_of
from scalescope.scaling.compare.answer import Comparison, FoundAlone, PartChange
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.finding.kinds import is_now_and_then, is_of_one_step
from scalescope.scaling.trace.kernel_kinds import KINDS
from scalescope.scaling.verdicts.reference import CONFIRMS, parts_of

_OF_COMPUTE: tuple[Code, ...] = ("own_work", "more_work")
_MOST_BESIDE = 3  # causes beside the first one, in sentences; a list has them all


def leading(answer: Comparison) -> FoundAlone | None:
    """Return the cause that a comparison begins with: of steps that noise may hide much of; None where none does.

    Where a loop stands still at a place, that place is said first; so is what changed for sure by more than the cause
    costs.
    """
    low, high, step = answer.low_ms or 0.0, answer.high_ms or 0.0, answer.step_ms or 1.0
    if answer.verdict != "same" or answer.gaps or not answer.alone or max(-low, high) <= WIDE * step:
        return None
    first = answer.alone[0]
    finding = first.finding
    return first if _is_plain(finding) and (finding.ms or 0.0) >= most_sure_ms(_without(answer, finding)) else None


def beside_lead(answer: Comparison) -> list[FoundAlone]:
    """Return the causes of one side alone that are said beside the one that a comparison begins with, costliest first;
    none where it begins otherwise.
    """
    if leading(answer) is None:
        return []
    return [one for one in answer.alone[1:] if _is_plain(one.finding)][:_MOST_BESIDE]


def _is_plain(finding: Finding) -> bool:
    return finding.ms is not None and finding.also_late is None and not is_of_one_step(finding)


def parts_of_lead(answer: Comparison) -> list[PartChange]:
    """Return the kinds of compute that changed beyond noise by the cause that a comparison begins with, which is sure,
    so that they did: steps without a profiler, which noise hides, need not show it.
    """
    lead = leading(answer)
    if lead is None:
        return []
    sign = 1 if lead.side == "other" else -1
    own = set(parts_of(lead.finding)) & set(KINDS)
    return [one for one in answer.parts if one.name in own and not one.within_noise and one.change_ms * sign > 0]


def is_trifle(found: FoundAlone, change_ms: float) -> bool:
    """Tell whether a cause costs so little of a change that naming it would say that it is the change."""
    return (found.finding.ms or 0.0) < NO_TRIFLE * abs(change_ms)


def lead_sentences(answer: Comparison, lead: FoundAlone, here: str, there: str) -> list[str]:
    """Return what a cause costs the side that has it, and what else is sure: a sentence each, without full stops.

    `here`, `there`: the sides' names.
    """
    finding, besides = lead.finding, beside_lead(answer)
    mine, theirs = (there, here) if lead.side == "other" else (here, there)
    costs = f"{subject(finding)} {verb(finding)} a step {_size(finding)}"
    told = one_or_two(f"In {mine}, and not in {theirs}, {costs}", because(finding))
    too = [_who_costs(one.finding) for one in besides if one.side == lead.side]
    told += [f"Beside it, in {mine} alone too, {listing(too)}"] if too else []
    gone = [_who_costs(one.finding) for one in besides if one.side != lead.side]
    told += [f"In {theirs}, and not in {mine}, {listing(gone)}"] if gone else []
    rest = _without(answer, finding)
    for one in besides:
        rest = _without_what_it_makes(rest, one.finding)
    sure = sure_sentences(rest, here, there)
    work = more_kernels(rest, here, there)
    counted = max((abs(one.told_ms or 0.0) for one in moved(rest) if one.more_done), default=0.0)
    if work in sure and counted > (finding.ms or 0.0):  # which is as sure, and more
        return [work, *told, *_why_less(finding), *(one for one in sure if one != work)]
    return [*told, *_why_less(finding), *sure]


def _who_costs(finding: Finding) -> str:
    """Return who or what costs how much: of a rank, with what it is."""
    return f"{who_of(finding)} {verb(finding)} {_size(finding)}"


def _size(finding: Finding) -> str:
    return f"{cost(finding, even=True)}{' in the mean' if is_now_and_then(finding) else ''}{provided(finding)}"


def _without_what_it_makes(answer: Comparison, finding: Finding) -> Comparison:
    """Return what is sure besides a further cause: a part that changed by far more than it costs is none of its own."""
    far = [one for one in answer.parts if CONFIRMS * abs(one.told_ms or 0.0) > (finding.ms or 0.0)]
    rest = _without(answer, finding)
    return replace(rest, parts=[one for one in answer.parts if one in rest.parts or one in far])


def _why_less(finding: Finding) -> list[str]:
    """Return why a rank's own work costs less than it takes, beyond the cost's interval; none where it does not."""
    takes = next((row.ms for row in finding.evidence if row.kind == "activity" and row.ms is not None), None)
    if finding.code not in _OF_COMPUTE or len(ranks_of(finding)) != 1 or takes is None or finding.high_ms is None:
        return []
    if takes <= finding.high_ms:
        return []
    return [f"Not all of the {milliseconds(takes)} is lost: without it rank {finding.rank} would wait for the others"]


def _without(answer: Comparison, finding: Finding) -> Comparison:
    """Return what is sure besides a cause: other parts, other ranks."""
    ranks = ranks_of(finding)
    own = parts_of(finding)
    late = None if answer.late is not None and answer.late.rank in ranks else answer.late
    return replace(answer, parts=[part for part in answer.parts if part.name not in own], late=late)
