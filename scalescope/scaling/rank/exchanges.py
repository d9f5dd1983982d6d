"""A rank's collectives as its compute meets them: when data could move, for how long, and how much of that was exposed.

What a projection or an in-situ efficiency needs of a trace, kept small. Times are absolute ns on the rank's clock.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.rank.partition import OneRankShares
from scalescope.scaling.trace.intervals import Intervals, Ints, covered_before


class Exchange(msgspec.Struct, frozen=True, gc=False):
    """One collective on one rank, inside the rank's windows."""

    match: int | None  # its row in RunAnalysis.collectives; None: not matched across the ranks
    operation: str | None
    bytes: int | None
    dtype: str | None
    group_size: int | None
    ready: int  # from here on its data could move
    end: int
    exposed: int  # of the time from `ready` to `end`, ns in which nothing computed
    blocks: bool  # compute stood still until it ended

    @property
    def transfer(self) -> int:
        """Return how long data moved, in ns."""
        return self.end - self.ready


class RankExchanges(msgspec.Struct, frozen=True):
    """One rank's collectives inside its windows, ascending by when they could move data."""

    edges: Ints  # of the steps' windows
    exposed: Intervals  # communication without compute, disjoint
    exchanges: list[Exchange]


def rank_exchanges(
    shares: OneRankShares,
    collectives: Sequence[RankCollective],
    ready: Mapping[int, int],
    matches: Mapping[int, int],
    sizes: Mapping[int, int | None],
) -> RankExchanges:
    """Return a rank's exchanges.

    `ready` and `matches` are by the collective's index on this rank: when its data could move, and which match it is
    of; `sizes` is the bytes of a match, which a member may not tell.
    """
    edges = shares.windows.edges
    inside = [
        index for index, one in enumerate(collectives) if one.end > edges[0] and ready.get(index, one.start) < edges[-1]
    ]
    begin = np.array([ready.get(index, collectives[index].start) for index in inside], np.int64)
    end = np.array([collectives[index].end for index in inside], np.int64)
    exposed = covered_before(shares.exposed, end) - covered_before(shares.exposed, begin)
    last = covered_before(shares.exposed, end) - covered_before(shares.exposed, end - 1)
    found = []
    for index, at, until, bare, blocking in zip(
        inside, begin.tolist(), end.tolist(), exposed.tolist(), last.tolist(), strict=True
    ):
        one = collectives[index]
        match = matches.get(index)
        size = sizes.get(match) if match is not None else None
        found.append(
            Exchange(match, one.operation, size or one.bytes, one.dtype, one.group_size, at, until, bare, blocking > 0)
        )
    found.sort(key=lambda exchange: (exchange.ready, exchange.end))
    return RankExchanges(edges, shares.exposed, found)
