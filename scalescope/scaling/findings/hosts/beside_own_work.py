"""The rank beside one that computes more, on the same host: slower for what the two share, which is no second cause.

Cores share memory, caches and clocks. The rank with work of its own computes the rest of its step while the other one
waits for it, and has these for itself; the other one never computes alone, and each of its operators takes longer than
the same one there. So it is beside one that computes in a dearer precision. What of that goes with the work nobody
knows: without it both would compute beside each other all the time.
"""

import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.finding.kinds import is_counted
from scalescope.scaling.findings.candidate import Candidate, Scene


def with_ranks_beside(scene: Scene, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates, what makes the rank beside one with work of its own slower as what may go with that.

    Of two ranks alone: of more, the others would be slower alike.
    """
    if not scene.replayer.on_cpu or scene.analysis.hosts != 1 or len(scene.side.ranks) != 2:
        return list(candidates)
    own = next((one for one in candidates if _is_own_work(one)), None)
    slower = next((one for one in candidates if own is not None and _goes_with(one, own)), None)
    if own is None or slower is None:
        return list(candidates)
    together = replace(own, perhaps=(*own.perhaps, *slower.removals))
    return [together if one is own else one for one in candidates if one is not slower]


def _is_own_work(one: Candidate) -> bool:
    """Tell whether one rank computes in each step what the other does not, or not so: that is no machine's doing."""
    own = one.code == "own_work" or any(removal.what == "dearer" for removal in one.removals)
    return own and one.rank is not None and bool(one.in_each_ms) and is_counted(one.evidence)


def _goes_with(one: Candidate, own: Candidate) -> bool:
    """Tell whether the other rank is slower alike in all that both compute, and by no more than the work takes: for no
    longer than that has the one its host for itself.
    """
    if one.code != "slower_compute" or one.rank is None or one.rank == own.rank or is_counted(one.evidence):
        return False
    alike = any(row.name == "times_as_long" for row in one.evidence)
    return alike and bool(one.beyond_ms) and statistics.fmean(one.beyond_ms) <= statistics.fmean(own.in_each_ms)
