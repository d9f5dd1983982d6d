"""What loads that take turns cost, by all of a job's steps: a window has few of them, and each is drawn anew."""

from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.figures import COUNTED_LOADS, LATE, STEADY_STEPS
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.finding.order import ranked


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
