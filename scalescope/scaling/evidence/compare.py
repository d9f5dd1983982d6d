"""What the hosts of all ranks say side by side: who is held up by what, alone or with all others."""

from collections.abc import Mapping

from scalescope.scaling.evidence.common_steps import CommonSteps, beyond_others
from scalescope.scaling.evidence.host_cause import HostCause
from scalescope.scaling.evidence.host_evidence import HostEvidence
from scalescope.scaling.evidence.loading_causes import loading_causes
from scalescope.scaling.evidence.stall_causes import stall_causes
from scalescope.scaling.evidence.synchronising_causes import synchronising_causes


def compare_hosts(by_rank: Mapping[int, HostEvidence]) -> list[HostCause]:
    """Return the causes of lost host time, those that hold hosts up longest first; without ranks or steps none.

    They are facts about hosts. Whether a step is longer for them depends on how far the host is ahead of its device.
    """
    common = CommonSteps(by_rank)
    if not len(common):
        return []
    causes = [*loading_causes(common), *stall_causes(common), *synchronising_causes(common)]
    return sorted(causes, key=lambda cause: -cause.typical_ns)


def busy_beyond_others(by_rank: Mapping[int, HostEvidence]) -> dict[int, list[int]]:
    """Return by how much each rank's host is busier than the median of the other ranks' hosts, ns a common step.

    A rank of which this is nothing has no late host of its own: it launches late as all do, or waits for them.
    """
    common = CommonSteps(by_rank)
    excess = beyond_others(common.table(lambda one: one.busy_ns))
    return {rank: excess[at].tolist() for at, rank in enumerate(common.ranks)}
