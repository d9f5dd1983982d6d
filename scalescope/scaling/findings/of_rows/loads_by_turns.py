"""What loads that take turns cost, by all of a job's steps: a window has few of them, and each is drawn anew."""

from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.figures import COUNTED_LOADS, LATE, STEADY_STEPS
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.finding.kinds import is_certain
from scalescope.scaling.finding.order import ranked
from scalescope.scaling.findings.shares import bounded_steps

#: Of fewer profiled steps that have the same rank as their last one nothing is told.
_LEAST_STEPS = 3


def with_loads_by_turns(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return findings in which loads that shapes count, and that take turns, cost what all steps' rows tell.

    By how much the last rank of each step is later than the ranks in the mean: as much would be done by then with equal
    loads. Where anything makes a rank late in each step, that is in it as well, and the window's figures stay.
    """
    last = analysis.step_times.last if analysis.step_times is not None else None
    named = [one for one in findings if one.rank is not None and not one.at_most and (one.low_ms or 0.0) > 0]
    own = next((one for one in findings if any(row.name == COUNTED_LOADS for row in one.evidence)), None)
    if last is None or named or own is None or own.ms is None or own.low_ms is None or own.high_ms is None:
        return list(findings)
    if own.high_ms - own.low_ms <= last.high_ms - last.low_ms:
        return list(findings)
    evidence = [row for row in own.evidence if row.name not in (LATE, STEADY_STEPS)]
    evidence.append(EvidenceRow(kind="figure", name=LATE, ms=last.ms, value=float(last.steps)))
    evidence.append(EvidenceRow(kind="figure", name=STEADY_STEPS, ms=last.mean_step_ms))
    sized = replace(
        own,
        ms=last.ms,
        low_ms=last.low_ms,
        high_ms=last.high_ms,
        fraction=last.ms / last.mean_step_ms,
        evidence=tuple(evidence),
        backed="measured",
    )
    return ranked([sized if one is own else one for one in findings])


def without_turns_of_one(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return the findings without loads that take turns, where all steps say that one rank alone is late, and each
    profiled one has it as its last.

    A host that waits for a late rank takes what that brings over in few calls, before which nothing is recorded of it:
    by its launches it stands still as well. Loads that shapes count are there, whoever is the last.
    """
    late = analysis.step_times.late if analysis.step_times is not None else None
    if late is None or analysis.pipelines or _last_in_each_step(analysis) != late.rank:
        return list(findings)
    return [one for one in findings if one.code != "alternating_load" or is_certain(one)]


def _last_in_each_step(analysis: RunAnalysis) -> int | None:
    """Return the rank that does most by itself in each profiled step that all have; None where that differs."""
    own: dict[int, dict[int, float]] = {}
    for split in bounded_steps(analysis):
        own.setdefault(split.step, {})[split.rank] = split.by_itself_ms
    whole = [step for step in own.values() if len(step) == len(analysis.ranks) > 1]
    last = {max(step, key=lambda rank: step[rank]) for step in whole}
    return last.pop() if len(whole) >= _LEAST_STEPS and len(last) == 1 else None
