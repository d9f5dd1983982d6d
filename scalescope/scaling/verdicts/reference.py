"""What a run's causes cost the reference of `--against`: a cause that it has not is there whatever noise there is."""

from collections.abc import Sequence

import msgspec

from scalescope.scaling.answer import RankLoss
from scalescope.scaling.finding.codes import COMPUTED_BY_ALL, Code, Cure
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.finding.kinds import is_lost_in_noise, is_now_and_then
from scalescope.scaling.trace.kernel_kinds import KINDS, NORMALISATION, OPTIMISER

#: A cause that costs a reference less than this share of what it costs the run is none there: no cost is known to a
#: tenth, and mending nine tenths of it is mending it.
_NONE_BESIDE = 0.1
#: What all ranks compute alike is told of each run in which it costs so much of the step, and more.
SURELY_TOLD = 0.08
#: How much of what a cause costs is in the step's change at least, where that is no other's to wait.
CONFIRMS = 0.5
#: Faults of transfer that traces count, in every step alike: what they cost is a bound, that they are there is sure.
_COUNTED: tuple[Cure, ...] = ("exchange_once",)

#: The parts of a step that a cause makes longer on its rank, or on all.
PARTS_OF: dict[Code, tuple[str, ...]] = {
    **dict.fromkeys(("own_work", "more_work", "slower_compute", "throttled", "alternating_load"), tuple(KINDS)),
    **dict.fromkeys(("host_stall", "host_starved", "host_bound", "element_reads"), ("idle_launch",)),
    **dict.fromkeys(("synchronising", "recompilation", "allocation"), ("idle_launch",)),
    **dict.fromkeys(COMPUTED_BY_ALL, (*KINDS, "idle_launch")),
    # of these each operator's place tells what it is for
    **dict.fromkeys(("unfused_optimizer", "updates_by_hand"), (OPTIMISER, "idle_launch")),
    "unfused_normalisation": (NORMALISATION, "idle_launch"),
    "needless_collectives": ("exposed_transfer", "exposed_wait", "exposed_unsplit", "idle_launch"),
    "data_loading": ("idle_data",),
    "copies": ("exposed_memory",),
    **dict.fromkeys(
        ("small_buckets", "small_collectives", "late_bucket", "slow_transfer", "exposed_transfer"),
        ("exposed_transfer", "exposed_unsplit"),
    ),
}


def parts_of(finding: Finding) -> tuple[str, ...]:
    """Return the parts of a step that a cause makes longer: of what ranks do, its ranks', which the others wait for."""
    return *PARTS_OF.get(finding.code, ()), *(("exposed_wait",) if ranks_of(finding) else ())


def is_sure(finding: Finding) -> bool:
    """Tell whether a cause costs something for certain, whatever noise there is."""
    return bool(finding.ms) and bool(finding.low_ms) and not finding.at_most and not is_lost_in_noise(finding)


def is_counted(finding: Finding) -> bool:
    """Tell whether a cause is counted in the traces, though what it costs is not known but for a bound."""
    return finding.ms is not None and finding.remedy is not None and finding.remedy.cure in _COUNTED


def tells_where(losses: Sequence[RankLoss]) -> bool:
    """Tell whether the profiled steps' parts tell where the step's change lies: it is beyond noise, and these steps
    grew by as much within its bounds. Else what they grew by is their own.
    """
    low, high = losses[0].step_low_ms, losses[0].step_high_ms
    if low is None or high is None:
        return True
    grown = sum(loss.growth_ms for loss in losses) / len(losses)
    return not losses[0].within_noise and low <= grown <= high


def known_ms_of(finding: Finding, change_ms: float) -> float:
    """Return what a cause costs every step for sure, ms, where a step that is longer by `change_ms` has most of it;
    else 0. It is known by the steps that the cause is in, whatever runs differ by besides.
    """
    low_ms, ms = finding.low_ms or 0.0, finding.ms or 0.0
    each_step = not finding.at_most and finding.also_late is None and not is_now_and_then(finding)
    return ms if each_step and low_ms > 0 and change_ms >= CONFIRMS * ms else 0.0


def is_not_in_reference(finding: Finding) -> bool:
    """Tell whether a cause is there for sure, and not in the reference."""
    told = finding.reference_ms
    return told is not None and (is_sure(finding) or is_counted(finding)) and told < _NONE_BESIDE * (finding.ms or 0.0)


def beside_reference(findings: Sequence[Finding], references: Sequence[Sequence[Finding]]) -> list[Finding]:
    """Return a run's findings with what the same causes may cost the references, whichever has most of each.

    On whatever rank: a sleep that was rank 0's before is no new cause. As they are where a reference tells none of its
    causes, or not whether recording makes them: what it has is not known. Nor is it of what all ranks compute alike,
    which is told from a share of the step on, where it costs little more than that.
    """
    if not all(map(_tells_its_causes, references)):
        return list(findings)

    def most(code: Code, *, counted: bool) -> float:
        alike = [one for own in references for one in own if one.code == code and (is_counted(one) or not counted)]
        return max(map(may_cost_ms, alike), default=0.0)

    return [
        one if _may_be_untold(one, references)
        else msgspec.structs.replace(one, reference_ms=most(one.code, counted=is_counted(one)))
        for one in findings
    ]  # fmt: skip


def _may_be_untold(one: Finding, references: Sequence[Sequence[Finding]]) -> bool:
    told = all(any(other.code == one.code for other in own) for own in references)
    return one.code in COMPUTED_BY_ALL and not told and (one.fraction or 0.0) < SURELY_TOLD


def _tells_its_causes(findings: Sequence[Finding]) -> bool:
    return bool(findings) and all(one.code != "profiler_cost" for one in findings)


def may_cost_ms(finding: Finding) -> float:
    """Return what a cause costs, or what it may: a bound, and what noise may have made, may hide as much."""
    if finding.at_most or is_lost_in_noise(finding):
        return max(finding.ms or 0.0, finding.high_ms or 0.0)
    return finding.ms or 0.0
