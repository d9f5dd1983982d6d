"""What the hosts of all ranks say side by side: who is held up by what, alone or with all others."""

from collections.abc import Mapping

from scalescope.records.statistics import is_beyond_chance
from scalescope.scaling.evidence.causes.allocation import allocation_causes
from scalescope.scaling.evidence.causes.common_steps import CommonSteps, beyond_others
from scalescope.scaling.evidence.causes.compiling import compiling_causes
from scalescope.scaling.evidence.causes.debugging import debugging_causes
from scalescope.scaling.evidence.causes.host_bound import host_bound_causes
from scalescope.scaling.evidence.causes.loading import loading_causes
from scalescope.scaling.evidence.causes.pauses import pause_causes
from scalescope.scaling.evidence.causes.stalls import stall_causes
from scalescope.scaling.evidence.causes.starvation import starved_causes
from scalescope.scaling.evidence.causes.synchronising import synchronising_causes
from scalescope.scaling.evidence.gaps import MOST_PLACES
from scalescope.scaling.evidence.host_cause import HostCause
from scalescope.scaling.evidence.host_evidence import HostEvidence
from scalescope.scaling.evidence.interruptions import is_lock_wait


def compare_hosts(by_rank: Mapping[int, HostEvidence]) -> list[HostCause]:
    """Return the causes of lost host time, those that hold hosts up longest first; without ranks or steps none.

    They are facts about hosts. Whether a step is longer for them depends on how far the host is ahead of its device.
    """
    common = CommonSteps(by_rank)
    if not len(common):
        return []
    pauses = pause_causes(common)
    starved = starved_causes(common, pauses)
    causes = [
        *loading_causes(common),
        *not_starved(common, stall_causes(common), starved),
        *pauses,
        *starved,
        *synchronising_causes(common),
        *compiling_causes(common),
        *allocation_causes(common),
        *debugging_causes(common),
    ]
    causes += host_bound_causes(common, causes)
    return sorted(causes, key=lambda cause: -cause.typical_ns)


#: A stall that a program makes itself is one gap a step, or a few; or one whenever the host comes to its place.
_MOST_STALLS = 4
#: Where one gap is most of it, it is so in so many of the steps.
_IN_MOST = 0.75


def not_starved(common: CommonSteps, stalls: list[HostCause], starved: list[HostCause]) -> list[HostCause]:
    """Leave out stalls that are a starved host's own: it is interrupted at some places in most steps by chance.

    So are those of a host that waits for the interpreter's lock: it does so wherever Python runs. On cores that others
    use, too, each of two hosts alike is interrupted beyond the other in some steps: that is chance, of which stalls at
    the same few places, step after step, are none.
    """
    sure = {one.rank for one in starved if one.rank is None or not common.on_cpu or _is_sure([one], common)}
    sure |= {rank for rank in common.ranks if not _is_sure([one for one in stalls if one.rank == rank], common)}
    lost = {cause.rank: cause.typical_ns for cause in starved if cause.rank in sure}
    locked = {cause.rank for cause in starved if any(one.kind == "lock_waits" for one in cause.evidence)}
    return [
        one
        for one in stalls
        if not (one.rank in locked and is_lock_wait(one.each_pass_ns or _mean_gap_ns(one)))
        and (
            one.rank not in lost
            or one.each_pass_ns
            or (
                one.typical_ns > lost[one.rank]
                and ((one.evidence[0].count or 0) <= _MOST_STALLS or _is_one_gap(common, one))
            )
        )
    ]


def _is_sure(causes: list[HostCause], common: CommonSteps) -> bool:
    """Tell whether a rank is later than the others by its causes together beyond chance, of all places and ranks."""
    rows = [one.beyond_ns for one in causes]
    known = [row for row in rows if row is not None]
    if not known or len(known) < len(rows):
        return bool(rows)
    return is_beyond_chance([sum(step) for step in zip(*known, strict=True)], len(common.ranks) * MOST_PLACES)


def _is_one_gap(common: CommonSteps, stall: HostCause) -> bool:
    """Tell whether one gap is most of a stall in most steps, at a place to which the host comes more often: a layer's
    hook, of layers alike.
    """
    places = common.by_rank[stall.rank].gaps.places if stall.rank is not None else ()
    row = next((one for one in places if one.place == stall.place), None)
    if row is None or stall.rank is None:
        return False
    longest = common.row(stall.rank, row.longest_ns)
    return bool((2 * longest >= common.row(stall.rank, row.ns)).mean() >= _IN_MOST)


def _mean_gap_ns(stall: HostCause) -> float:
    gaps = stall.evidence[0]
    return gaps.ns / max(gaps.count or 0.0, 1.0)


def busy_beyond_others(by_rank: Mapping[int, HostEvidence]) -> dict[int, list[int]]:
    """Return by how much each rank's host is busier than the median of the other ranks' hosts, ns a common step.

    A rank of which this is nothing has no late host of its own: it launches late as all do, or waits for them.
    """
    common = CommonSteps(by_rank)
    excess = beyond_others(common.table(lambda one: one.busy_ns))
    return {rank: excess[at].tolist() for at, rank in enumerate(common.ranks)}
