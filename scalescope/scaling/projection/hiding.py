"""How much of the transfers stays hidden under compute when they take longer, or compute shorter.

A rank's step is replayed with two queues. Compute goes on, and stands still where in the trace it stood until a
collective ended. A collective begins at the point of the compute where its data were ready, and not before the one
before it has ended, where in the trace it did not either. What becomes longer is hidden as long as there is compute
beside; what sticks out stops the compute at its next standing point, or lengthens the step at its end. Waiting for
other ranks is left out here: it is projected by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scalescope.scaling.rank.exchanges import Exchange, RankExchanges
from scalescope.scaling.trace.intervals import Ints, covered_before

#: By how much longer an exchange's transfer takes: a factor.
Stretch = Callable[[Exchange], float]


@dataclass(frozen=True, slots=True)
class Hidden:
    """Transfers of the mean step of a rank, in ns: how long they take in all, and how long compute stands for them."""

    transfer: float
    exposed: float


def replay(rank: RankExchanges, stretch: Stretch, compute: float = 1.0) -> Hidden:
    """Return what the mean step would be with longer transfers, and with compute that takes `compute` times as long."""
    steps = len(rank.edges) - 1
    progress = _progress(rank)
    transfer = exposed = 0.0
    for step in range(steps):
        left, right = int(rank.edges[step]), int(rank.edges[step + 1])
        inside = [one for one in rank.exchanges if left <= one.ready < right]
        moved, stood = _step(inside, progress, left, right, stretch, compute)
        transfer += moved
        exposed += stood
    return Hidden(transfer / steps, exposed / steps)


def _step(
    exchanges: list[Exchange],
    progress: Callable[[int], int],
    left: int,
    right: int,
    stretch: Stretch,
    compute: float,
) -> tuple[float, float]:
    """Replay one step's exchanges; returns their time in all, and how long compute stands, in ns."""
    origin = progress(left)
    stood = transfer = 0.0
    free = ended = -1.0  # when the queue is free again, replayed and in the trace
    for one in exchanges:
        takes = one.transfer * stretch(one)
        begins = (progress(one.ready) - origin) * compute + stood
        if one.ready >= ended:
            begins = max(begins, free)  # it stood behind the one before in the trace, too
        ends = begins + takes
        free, ended = max(free, ends), max(ended, float(one.end))
        transfer += takes
        if one.blocks:
            stood += max(0.0, ends - ((progress(one.end) - origin) * compute + stood))
    # what outlasts the step's own compute holds up the next step
    stood += max(0.0, free - ((progress(right) - origin) * compute + stood))
    return transfer, stood


def _progress(rank: RankExchanges) -> Callable[[int], int]:
    """Return how far the compute has come at an instant: the time without what it stood for communication."""
    edges = {int(edge) for edge in rank.edges}
    instants = sorted({one.ready for one in rank.exchanges} | {one.end for one in rank.exchanges} | edges)
    at: Ints = np.array(instants, np.int64)
    come = at - covered_before(rank.exposed, at)
    known = dict(zip(instants, come.tolist(), strict=True))
    return known.__getitem__
