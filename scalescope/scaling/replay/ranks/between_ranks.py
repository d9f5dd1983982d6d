"""How much collectives slow compute, from one trace alone: the same launch on two ranks, beside collectives and not.

Where a rank is late, the others' collectives wait beside their compute and its own do not. With d the duration of the
same launch on two ranks, o of it beside a collective, and c what launches that have nothing beside them on either rank
typically differ by (devices differ a little),

    inflation = Σ (d₁ - c·d₂) / Σ (o₁ - o₂)

of launches that are beside collectives on the first rank for longer than on the second. A launch that takes much longer
on the second tells nothing: no collective makes one faster, so something else held it up there (another process that
has that device by turns).
"""

from collections.abc import Set

import numpy as np

from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.replay.ranks.extra import held_up_by
from scalescope.scaling.replay.ranks.side_by_side import Floats, SideBySide

#: In a step, collectives must be beside so much more of one rank's compute than of the other's, as a share of it.
_LEAST_SHARE = 0.03

#: A launch was held up on the second rank where it takes longer there by so much, ns, and by half of it as well.
_HELD_UP_NS, _HELD_UP = 300_000, 0.5

Cell = tuple[float, float]  # ns by which compute is longer, ns by which it is longer beside collectives


def cells_between_ranks(graph: Graph, side: SideBySide) -> list[Cell]:
    """Return a cell for each step and each rank that has more beside its compute than the rank with least."""
    found = []
    held_up = {rank: held_up_by(graph, side, rank) for rank in side.ranks}
    for step in side.steps:
        columns = {rank: _columns(graph, side, rank, step, held_up[rank]) for rank in side.ranks}
        overlap = {rank: float(np.nansum(own[1])) for rank, own in columns.items()}
        least = min(overlap, key=lambda rank: overlap[rank])
        for rank in side.ranks:
            if rank != least and (cell := _cell(columns[rank], columns[least])) is not None:
                found.append(cell)
    return found


def _columns(graph: Graph, side: SideBySide, rank: int, step: int, held_up: Set[int]) -> tuple[Floats, Floats]:
    """Return the duration of each place's launch as traced, and how much of it is beside collectives, ns.

    What the rank's own work on another stream holds up is left out: that is no collective's doing.
    """
    own = side.launches[rank, step]
    duration = np.full(len(side.programs[step]), np.nan)
    overlap = np.full(len(side.programs[step]), np.nan)
    for at, place in zip(own.activity, own.place.tolist(), strict=True):
        node = graph.activities[at]
        if place >= 0 and node.kind == COMPUTE and at not in held_up:
            duration[place], overlap[place] = node.traced_end - node.traced_start, node.overlap_ns
    return duration, overlap


def _cell(one: tuple[Floats, Floats], least: tuple[Floats, Floats]) -> Cell | None:
    both = ~(np.isnan(one[0]) | np.isnan(least[0]))
    quiet = both & (one[1] == 0) & (least[1] == 0)
    reference = float(least[0][quiet].sum())
    if reference <= 0:
        return None
    longer = one[0] - _typical_ratio(one[0][quiet], least[0][quiet]) * least[0]
    held_up = -longer > np.maximum(_HELD_UP_NS, _HELD_UP * one[0])
    more = both & (one[1] > least[1]) & ~held_up
    overlap = float((one[1] - least[1])[more].sum())
    if overlap < _LEAST_SHARE * float(one[0][both].sum()):
        return None
    return float(longer[more].sum()), overlap


def _typical_ratio(times: Floats, others: Floats) -> float:
    """Return the median ratio of two ranks' launches, each weighed by its time: a few that differ move it little."""
    known = others > 0
    ratios, weights = times[known] / others[known], others[known]
    order = np.argsort(ratios)
    passed = np.cumsum(weights[order])
    return float(ratios[order][int(np.searchsorted(passed, passed[-1] / 2))])
