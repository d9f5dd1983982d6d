"""A host on which all operators take longer, where they compute: that is what the rank's compute is longer by.

Where a device computes, operators that take longer are a host without the time that it needs. Where hosts compute, a
rank with more to compute looks the same, and how much longer it takes is not between its launches but in them.
"""

from collections.abc import Sequence

from scalescope.scaling.finding.figures import LATE_RANK
from scalescope.scaling.findings.candidate import Candidate, Scene

#: What takes out what launches take longer: of one rank, or of ranks by turns.
_OF_COMPUTE = ("more_work", "slower_compute", "alternating_load")


def without_slow_operators(scene: Scene, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates without hosts that are starved by their operators alone, where compute tells of those."""
    if not scene.replayer.on_cpu:
        return list(candidates)
    of_compute = [one for one in candidates if one.code in _OF_COMPUTE]
    longer = {one.rank for one in of_compute}
    longer |= {
        round(row.value)
        for one in of_compute
        for row in one.evidence
        if row.name == LATE_RANK and row.value is not None
    }
    return [one for one in candidates if not (one.rank in longer and _is_by_operators(one))]


def _is_by_operators(one: Candidate) -> bool:
    return one.code == "host_starved" and bool(one.evidence) and all(row.kind == "operator" for row in one.evidence)
