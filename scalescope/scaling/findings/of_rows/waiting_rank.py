"""The rank beside one that is late for sure: where it waits for its cores, it is no slower by itself."""

from collections.abc import Sequence

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.finding.kinds import is_certain, is_lost_in_noise, is_now_and_then

#: What a rank that waits for its cores looks like.
_LOOKS_LIKE: tuple[Code, ...] = ("slower_compute", "host_starved")
#: Its waits are most of what it may cost. What is left is less than them, of a cost that may be nothing by itself.
_MOSTLY = 0.5


def without_waiting_ranks(findings: Sequence[Finding], analysis: RunAnalysis) -> list[Finding]:
    """Return the findings without what may make a rank slower, or nothing, where in its profiled steps it waited for
    its cores for most of that longer than a rank that is late for sure.

    Two ranks on two cores: the threads of the one that is late have the other's core now and then. That is no second
    cause.
    """
    times = analysis.step_times
    waits = times.core_waits.profiled_ms if times is not None and times.core_waits is not None else []
    if analysis.activity != "cpu" or not waits:
        return list(findings)
    late = {rank for one in findings if _is_sure(one) for rank in ranks_of(one)}
    return [one for one in findings if not any(_explains(one, rank, waits) for rank in late)]


def _is_sure(one: Finding) -> bool:
    there = is_certain(one) or (one.low_ms or 0.0) > 0
    return one.ms is not None and there and not one.at_most and not is_now_and_then(one)


def _explains(one: Finding, late: int, waits: Sequence[float]) -> bool:
    if one.code not in _LOOKS_LIKE or not is_lost_in_noise(one) or one.rank is None or one.ms is None:
        return False
    if one.rank == late or max(one.rank, late) >= len(waits):
        return False
    return waits[one.rank] - waits[late] >= _MOSTLY * one.ms
