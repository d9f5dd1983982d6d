"""What a job's own rows say of steps that no window met: the long ones among its steady steps."""

from collections.abc import Sequence

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding import (
    IN_STEPS,
    STEADY_STEPS,
    EvidenceRow,
    Finding,
    Remedy,
    is_late,
    is_of_steady_steps,
    is_within_noise,
)
from scalescope.scaling.finding_order import ranked, weight

#: Without a cause that is timed, only what costs so much of the mean step is told, and of devices alone: hosts that
#: compute share their cores.
_LARGE = 0.05


def with_long_steps(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return the findings with that of long steps, most costly first, and without what says the same or says nothing.

    What a window shows of the same cause is part of it, and less.
    """
    kept = [one for one in findings if not is_of_steady_steps(one) or (is_late(one) and one.code != "unsteady")]
    if analysis.growing is not None:  # which is told by itself, and is why they differ
        kept = [one for one in kept if one.code != "unsteady" or one.rank is not None] or kept
    found = _finding(analysis)
    if found is None or any(
        _is_the_same(one, found) and not is_within_noise(one) and weight(one) >= weight(found) for one in kept
    ):
        return kept
    others = [one for one in kept if one.code != "nothing" and not _is_the_same(one, found)]
    unpriced = [one for one in others if one.ms is None]
    return [*ranked([found, *(one for one in others if one.ms is not None)]), *unpriced]


def _is_the_same(one: Finding, found: Finding) -> bool:
    return one.code in (found.code, "unsteady") and (found.rank is None or one.rank in (found.rank, None))


def _finding(analysis: RunAnalysis) -> Finding | None:
    long = analysis.step_times.long_steps if analysis.step_times is not None else None
    if long is None:
        return None
    loads = long.cause == "loading"
    if not loads and (analysis.activity != "gpu" or long.ms < _LARGE * long.mean_step_ms):
        return None
    steps = analysis.step_times.measured_steps if analysis.step_times is not None else 0
    return Finding(
        code="data_loading" if loads else "unsteady",
        rank=long.rank,
        ms=long.ms,
        low_ms=max(0.0, long.low_ms),
        high_ms=long.high_ms,
        fraction=long.ms / long.mean_step_ms,
        evidence=(
            EvidenceRow(kind="figure", name=IN_STEPS, ms=long.each_ms, calls=float(long.count), value=float(steps)),
            EvidenceRow(kind="figure", name=STEADY_STEPS, ms=long.mean_step_ms),
        ),
        remedy=Remedy(cure="load_faster" if loads else "profile_longer"),
        backed="measured",
    )
