"""Whether a host that stands still at one place in every step may have been interrupted there by chance.

What steps differ by says little of that: a loop that takes 50 ms takes 90 where others have its core for a while, and
three such steps differ by more than three quiet ones. But interruptions come wherever a host happens to be. One that is
at a place for a thousandth of its time is caught there once in a thousand of them, and not in each of three steps, of
which none has room for more than a few so long.
"""

import numpy as np

from scalescope.records.statistics import SURE
from scalescope.scaling.evidence.causes.common_steps import CommonSteps
from scalescope.scaling.evidence.gaps import PlacedGaps
from scalescope.scaling.evidence.host_timeline import SHORTEST_GAP_NS


def is_punctual(common: CommonSteps, at: int, gaps: PlacedGaps, usual_ns: float, told: slice) -> bool:
    """Tell whether the rank in row `at` stands still at a place in every step for longer than chance can make it.

    `usual_ns`: what the other ranks take there, a step. `told`: the steps that tell.

    As many interruptions as the shortest of these gaps goes into a step, each of which meets the place for the share of
    its time that a host is there: that all steps have one at some place where a host is as briefly (or more so) is no
    likelier than their number in each step, multiplied, times that share to the power of one step less.
    """
    rank = common.ranks[at]
    own = common.by_rank[rank]
    if not gaps.free_ns:
        return False
    free = common.row(rank, gaps.free_ns)[told]
    least = float(free.min()) - usual_ns if free.size > 1 else 0.0
    runs = (common.row(rank, own.busy_ns) + common.row(rank, own.gap_ns) - common.row(rank, gaps.ns))[told]
    if least <= 0 or runs.min() <= 0:
        return False
    steps = common.row(rank, own.step_ns)[told]
    share = np.minimum(max(usual_ns, SHORTEST_GAP_NS) / runs, 1.0)
    chance = np.prod(steps / least * share) / share.max()
    return bool(chance * len(common.ranks) <= 1 - SURE)
