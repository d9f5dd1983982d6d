"""What holds of every finding's figures, however they came about: 0 ≤ low ≤ ms ≤ high, and no more than a step.

A figure beyond that is a defect of ours, never of the job. Tests fail on it; to a user the finding is told as a bound,
by what of it can be true.
"""

import math
import os
from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.finding.finding import Finding

#: Where this is set, as for tests, figures that cannot be raise.
STRICT = "SCALESCOPE_STRICT"
#: What is there in some steps alone costs more than a profiled step where those are many times as long: up to so many.
_MOST_STEPS = 10.0
#: What sums of floats may be off by, of the step.
_ROUNDED = 1e-6


class UnsoundError(AssertionError):
    """A finding's figures cannot be."""


def are_sound(ms: float, low_ms: float, high_ms: float, step_ms: float, *, may_lengthen: bool = True) -> bool:
    """Tell whether a cost and its bounds may be those of a step so long; `may_lengthen`: it may be below 0, too."""
    if not all(map(math.isfinite, (ms, low_ms, high_ms))):
        return False
    off = _ROUNDED * max(step_ms, 1.0)
    least = -max(high_ms, ms) if may_lengthen else 0.0
    within = high_ms <= _MOST_STEPS * step_ms if step_ms > 0 else True
    return -off <= ms and least - off <= low_ms <= ms + off and ms <= high_ms + off and within


def sound(finding: Finding, step_ms: float, *, may_lengthen: bool = True) -> Finding:
    """Return a finding of a step, as long as the longest known; as a bound where its figures cannot be.

    `may_lengthen`: a change, which may make the step longer. Raises UnsoundError where STRICT is set.
    """
    ms, low_ms, high_ms = finding.ms, finding.low_ms, finding.high_ms
    if ms is None or low_ms is None or high_ms is None:
        return finding
    if are_sound(ms, low_ms, high_ms, step_ms, may_lengthen=may_lengthen):
        return finding
    if os.environ.get(STRICT):
        raise UnsoundError(f"{finding.code}: {ms} ms ({low_ms} to {high_ms}) of a step of {step_ms} ms")
    most = max((one for one in (ms, high_ms) if 0 <= one <= step_ms), default=max(step_ms, 0.0))  # nan is neither
    return replace(
        finding,
        ms=most,
        low_ms=0.0,
        high_ms=most,
        fraction=most / step_ms if step_ms > 0 else 0.0,
        at_most=True,
        at_least=False,
        one_ms=None,
    )


def all_sound(findings: Sequence[Finding], step_ms: float) -> list[Finding]:
    """Return findings with those as bounds whose figures cannot be."""
    return [sound(one, step_ms) for one in findings]
