"""What a job's own rows say of steps that no window met: the long ones among its steady steps."""

import statistics
from collections.abc import Sequence
from typing import get_args

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import LongSteps, OwnPart
from scalescope.scaling.finding.figures import AT_STEP, IN_STEPS, MET_STEP, STEADY_STEPS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.kinds import (
    is_certain,
    is_late,
    is_no_fault,
    is_of_resting_workers,
    is_of_steady_steps,
    is_within_noise,
)
from scalescope.scaling.finding.order import ranked, weight

#: Without a cause that is timed, and where they do not stand apart, only what costs so much of the mean step is told.
#: Hosts that compute share their cores: of them none that may be waits for these.
_LARGE = 0.05
#: What costs each step so much of what a few long ones do is told before them: how often they come nobody knows.
_NO_LESS = 0.25
#: So many of those that stand apart are named.
_NAMED = 6
#: A part that takes so much of what a profiled one is longer by is why.
_MOSTLY = 0.5


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
    priced = [one for one in others if one.ms is not None]
    if not is_within_noise(found):
        return [*ranked([found, *priced]), *unpriced]
    faults = [one for one in priced if _is_sure(one) and weight(one) >= _NO_LESS * weight(found)]
    return [*faults, *ranked([found, *(one for one in priced if one not in faults)]), *unpriced]


def _is_sure(one: Finding) -> bool:
    """Tell whether it is a fault for sure: what taking ready batches over costs is none."""
    fault = not one.at_most and not is_no_fault(one) and not is_of_resting_workers(one)
    return fault and ((one.low_ms or 0.0) > 0 or is_certain(one))


def _is_the_same(one: Finding, found: Finding) -> bool:
    return one.code in (found.code, "unsteady") and (found.rank is None or one.rank in (found.rank, None))


def _finding(analysis: RunAnalysis) -> Finding | None:
    times = analysis.step_times
    long = times.long_steps if times is not None else None
    if times is None or long is None:
        return None
    loads = long.cause == "loading"
    if not loads and analysis.activity == "cpu" and not (long.at and times.core_waits is not None):
        return None
    if not loads and not long.at and long.ms < _LARGE * long.mean_step_ms:
        return None
    steps = times.measured_steps if long.of is None else long.of
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
            *(EvidenceRow(kind="figure", name=AT_STEP, value=float(step)) for step in long.at[:_NAMED]),
            *_met(analysis, long),
        ),
        remedy=Remedy(cure="load_faster" if loads else "do_less_often" if long.at else "profile_longer"),
        backed="measured",
    )


def _met(analysis: RunAnalysis, long: LongSteps) -> list[EvidenceRow]:
    """Return what traces show of the first of them that a window met: nothing where it met none."""
    if not long.profiled:
        return []
    step = long.profiled[0]
    there = {one.rank: one for one in analysis.steps if one.step == step}
    others = {rank: [one for one in analysis.steps if one.rank == rank and one.step not in long.profiled]
              for rank in there}  # fmt: skip
    if not there or not all(others.values()):
        return [EvidenceRow(kind="figure", name=MET_STEP, value=float(step))]
    # all ranks', or the one's that the others wait for: of the others it is a wait
    longer = {
        name: max(
            one.part_ms(name) - statistics.median(other.part_ms(name) for other in others[rank])
            for rank, one in there.items()
        )
        for name in get_args(OwnPart)
    }
    most: OwnPart = max(longer, key=lambda name: longer[name])
    if longer[most] < _MOSTLY * long.each_ms:
        return [EvidenceRow(kind="figure", name=MET_STEP, value=float(step))]
    counts = [
        (one.operators or 0) / usual
        for rank, one in there.items()
        if (usual := statistics.median(other.operators or 0 for other in others[rank]))
    ]
    more = max(counts, default=None)
    return [EvidenceRow(kind="figure", name=f"{MET_STEP} {most}", value=float(step), ms=longer[most], calls=more)]
