"""How large the grids are that a rank launches, beside the others': more to compute, and no slower device."""

import statistics

import numpy as np

from scalescope.scaling.findings.candidate import MOST_STEPS, Scene
from scalescope.scaling.trace.kernel_kinds import COPIES, ELEMENTWISE, kind_of

#: Grids differ where those of so much of the compute that goes over elements do, at least.
_SHARE = 0.1


def times_the_blocks(scene: Scene, rank: int) -> float | None:
    """Return how many times the others' a rank's grids are, in most steps, where those of much of its compute differ.

    A kernel that goes over a tensor's elements is launched with so many blocks as these need: no device that is slower
    has more of them. Grids of other kernels are as large as the device. What goes over parameters has the same grid on
    every rank; of what has another one, the typical launch tells.
    """
    found = [_times_the_blocks_in(scene, rank, step) for step in scene.side.steps]
    larger = [ratio for ratio in found if ratio is not None and ratio > 1]
    return statistics.median(larger) if larger and len(larger) >= MOST_STEPS * len(found) else None


def _times_the_blocks_in(scene: Scene, rank: int, step: int) -> float | None:
    side, graph = scene.side, scene.replayer.graph
    ratios: list[float] = []
    weights: list[float] = []
    whole = 0.0
    own = side.launches[rank, step]
    blocks, work = side.others(rank, step, "blocks"), side.others(rank, step, "work_ns")
    for row in np.flatnonzero(own.place >= 0).tolist():
        place = int(own.place[row])
        ratio = float(own.blocks[row] / blocks[place])
        if kind_of(graph.activities[own.activity[row]].name) not in (ELEMENTWISE, COPIES) or ratio != ratio:
            continue
        whole += float(work[place])
        if ratio != 1.0:
            ratios.append(ratio)
            weights.append(float(work[place]))
    if sum(weights) <= _SHARE * whole or not whole:
        return None
    order = np.argsort(ratios)
    passed = np.cumsum(np.array(weights)[order])
    return float(np.array(ratios)[order][int(np.searchsorted(passed, passed[-1] / 2))])
