"""Which rank computes in a dearer precision what the others do in a cheaper one: a layer in double by mistake.

It is one cause, whatever operators it is in: what they take beyond the others' of the same place, and what converts to
that precision and back. What operators compute in is recorded with their shapes, so it is no guess, and no chance.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from scalescope.records.dtypes import PRECISIONS
from scalescope.scaling.finding.figures import CONVERTING, PRECISION
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import MOST_STEPS, WORTH_A_LOOK, Candidate, Scene
from scalescope.scaling.replay.removal import Removal

_MOST_NAMES = 3


def dearer_precision(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each rank that computes in a dearer precision than the others, step after step."""
    for rank in scene.side.ranks if len(scene.side.ranks) > 1 else ():
        longer, evidence = _beyond_others(scene, rank)
        if sum(ms >= WORTH_A_LOOK * scene.step_ms for ms in longer) >= max(1.0, MOST_STEPS * len(longer)):
            yield Candidate(
                code="slower_compute",
                rank=rank,
                removals=(Removal("dearer", rank),),
                in_each_ms=tuple(longer),
                evidence=evidence,
                remedy=Remedy(cure="same_precision"),
            )


def _beyond_others(scene: Scene, rank: int) -> tuple[list[float], tuple[EvidenceRow, ...]]:
    """Return what a rank's dearer precision takes beyond the others in each step, ms, and what tells of it."""
    side, graph = scene.side, scene.replayer.graph
    mine: dict[str, float] = defaultdict(float)
    theirs: dict[str, float] = defaultdict(float)
    by_precision: Counter[tuple[int, int]] = Counter()
    longer: list[float] = []
    converting_ms = conversions = calls = 0.0
    scale = max(1, len(side.steps))
    for step in side.steps:
        own, dearer = side.launches[rank, step], side.is_dearer(rank, step)
        longer.append(0.0)
        others, precision = side.theirs(rank, step, "work_ns"), side.theirs(rank, step, "precision")
        for row in np.flatnonzero(dearer).tolist():
            took, name = float(own.work_ns[row]) / 1e6, graph.activities[own.activity[row]].name
            if own.stands_in[row] < 0:
                converting_ms, conversions, longer[-1] = converting_ms + took, conversions + 1, longer[-1] + took
                continue
            other = float(others[row]) / 1e6
            mine[name], theirs[name] = mine[name] + took / scale, theirs[name] + other / scale
            by_precision[int(own.precision[row]), int(precision[row])] += round(1e6 * took)
            longer[-1] += took - other
            calls += 1
    if not by_precision:
        return longer, ()
    own_precision, others_precision = (PRECISIONS[place - 1] for place in by_precision.most_common(1)[0][0])
    most = sorted(mine, key=lambda name: theirs[name] - mine[name])[:_MOST_NAMES]
    figure = EvidenceRow(
        kind="figure",
        name=f"{PRECISION} {own_precision} {others_precision}",
        ms=sum(mine.values()),
        others_ms=sum(theirs.values()),
        calls=calls / scale,
    )
    converting = EvidenceRow(kind="figure", name=CONVERTING, ms=converting_ms / scale, calls=conversions / scale)
    rows = (EvidenceRow(kind="operator", name=name, ms=mine[name], others_ms=theirs[name]) for name in most)
    return longer, (figure, *((converting,) if conversions else ()), *rows)
