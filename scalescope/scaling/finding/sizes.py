"""What a finding may cost: bounds, and what comes back where its remedy only spreads it."""

from collections.abc import Sequence

from msgspec import structs

from scalescope.scaling.finding.codes import EVENS_OUT, Code
from scalescope.scaling.finding.figures import GOES_WITH_IT
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy, ranks_of

#: A cost whose interval begins below this reads as 0.00 ms.
ZERO_MS = 0.005


def bounded(evidence: Sequence[EvidenceRow], ms: float) -> tuple[EvidenceRow, ...]:
    """Return the evidence of what costs so much at most, with what of that is more than the time that it names."""
    named = next((row.ms for row in evidence if row.ms is not None), None)
    if named is None or ms - named < ZERO_MS:
        return tuple(evidence)
    return (*evidence, EvidenceRow(kind="figure", name=GOES_WITH_IT, ms=ms - named))


def as_bound(finding: Finding) -> Finding:
    """Return a finding as what its remedy brings at most, which may be nothing: its interval's upper end."""
    if finding.at_most or not finding.ms:
        return finding
    high = max(finding.ms, finding.high_ms or 0.0)
    fraction = None if finding.fraction is None else min(1.0, finding.fraction * high / finding.ms)
    return structs.replace(finding, ms=high, low_ms=0.0, high_ms=high, fraction=fraction, at_most=True, at_least=False)


def bound_of(code: Code, ms: float, step_ms: float, evidence: Sequence[EvidenceRow], remedy: Remedy) -> Finding:
    """Return what can be had of a step at most, and maybe nothing, as no replay but its own parts tell."""
    return Finding(
        code=code,
        ms=ms,
        low_ms=0.0,
        high_ms=ms,
        fraction=ms / step_ms,
        evidence=tuple(evidence),
        remedy=remedy,
        backed="bound",
        at_most=True,
    )


def evened_out(finding: Finding) -> Finding | None:
    """Return what comes of it where the other ranks take over what a finding's ranks have more of: these become longer,
    and of n ranks of which one has more (n-1)/n of the cost comes back. None where its remedy spreads nothing.
    """
    remedy, ms, own = finding.remedy, finding.ms, len(ranks_of(finding))
    if remedy is None or remedy.cure not in EVENS_OUT or not remedy.size or ms is None or not 0 < own < remedy.size:
        return None
    share = 1 - own / remedy.size
    low, high, part = (
        None if one is None else share * one for one in (finding.low_ms, finding.high_ms, finding.fraction)
    )
    return structs.replace(finding, ms=share * ms, low_ms=low, high_ms=high, fraction=part)
