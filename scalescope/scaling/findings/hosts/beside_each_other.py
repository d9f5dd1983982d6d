"""What a late rank's cause brings at least, where ranks share a host: without it they compute beside each other again.

While the others wait for a rank, it has for itself what cores share: memory, caches, clocks. Its own compute is quicker
for that, and no launch in the trace shows by how much. An autoencoder's rank with a histogram of every parameter took
214 ms longer by itself, and its step was 185 to 191 ms longer than without (by turns, on two cores): the rest of what
it computed, 133 ms beside nobody, took a fifth longer beside the other rank.
"""

import math

from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.codes import ON_THE_DEVICE
from scalescope.scaling.findings.candidate import Candidate, Scene

#: Compute beside other ranks' may take so much longer than alone.
_LONGER = 0.2


def least_beside_others_ms(scene: Scene, candidate: Candidate, gained: Interval) -> float:
    """Return what a cause of some ranks brings at least, ms: what they compute besides gets slower without it."""
    late = candidate.late
    if not scene.replayer.on_cpu or scene.analysis.hosts != 1 or not late or len(late) == len(scene.side.ranks):
        return gained.low
    _, ranks = step_as_run(scene.analysis)
    own_ms = gained.value if candidate.code in ON_THE_DEVICE else 0.0
    besides_ms = max((rank.part_ms("compute") - own_ms for rank in ranks if rank.rank in late), default=0.0)
    slower_ms = _LONGER * min(max(0.0, besides_ms), gained.value)
    return max(0.0, gained.value - math.hypot(gained.value - gained.low, slower_ms))
