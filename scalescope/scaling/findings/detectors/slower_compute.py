"""The same kernels, longer on one rank than on the others.

Where all kinds of kernels are longer alike, the device is slower or shared; where one kind is, that kernel is. Devices
of one type differ by a per cent or two without anybody's doing, which is no finding.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from scalescope.scaling.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.trace.kernel_kinds import kind_of

#: Devices alike differ by less than this.
_NATURAL = 0.035
#: A kernel counts as having a collective beside it from this share of its time on.
_OVERLAPPED = 0.05
#: One kind alone, of which there is less to average over, by less than this.
_ONE_KIND = 0.1
#: All kinds count as longer alike where those that are make up so much of the compute.
_ALL_KINDS = 0.6


def slower_compute(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each rank whose compute, launch by launch, takes longer than the others' in every step."""
    for rank in scene.side.ranks if len(scene.side.ranks) > 1 else ():
        kinds = _by_kind(scene, rank)
        mine = sum(own for own, _ in kinds.values())
        theirs = sum(other for _, other in kinds.values())
        longer = {kind: own - other for kind, (own, other) in kinds.items() if own > (1 + _NATURAL) * other}
        whole = sum(kinds[kind][1] for kind in longer) >= _ALL_KINDS * theirs
        if not whole:
            longer = {kind: ms for kind, ms in longer.items() if ms > _ONE_KIND * kinds[kind][1]}
        if not theirs or not scene.worth_a_look(mine - theirs) or sum(longer.values()) < _NATURAL * theirs:
            continue
        yield Candidate(
            code="slower_compute",
            rank=rank,
            removals=(Removal("slow", rank),),
            evidence=_evidence(kinds, longer, whole=whole),
            remedy=Remedy(cure="look_at_device" if whole else "look_at_rank"),
        )


def _by_kind(scene: Scene, rank: int) -> dict[str, tuple[float, float]]:
    """Return of each kind of kernels what this rank and what the others take, ms a step, of the launches in common.

    Kernels that collectives run beside are left out: how much longer they take for it differs from kernel to kernel.
    """
    side, graph = scene.side, scene.replayer.graph
    mine: dict[str, float] = defaultdict(float)
    theirs: dict[str, float] = defaultdict(float)
    for step in side.steps:
        own = side.launches[rank, step]
        others = side.others(rank, step, "work_ns")
        for row in np.flatnonzero(own.place >= 0).tolist():
            node = graph.activities[own.activity[row]]
            other = others[own.place[row]]
            overlapped = node.overlap_ns > _OVERLAPPED * (node.traced_end - node.traced_start)
            if node.kind == COMPUTE and other == other and not overlapped:
                kind = kind_of(node.name)
                mine[kind] += float(own.work_ns[row]) / 1e6
                theirs[kind] += float(other) / 1e6
    steps = max(1, len(side.steps))
    return {kind: (mine[kind] / steps, theirs[kind] / steps) for kind in mine}


def _evidence(
    kinds: dict[str, tuple[float, float]], longer: dict[str, float], *, whole: bool
) -> tuple[EvidenceRow, ...]:
    ratio = statistics.median(own / other for own, other in kinds.values() if other)
    rows = [
        EvidenceRow(kind="activity", name=kind, ms=kinds[kind][0], others_ms=kinds[kind][1])
        for kind in sorted(longer, key=lambda kind: -longer[kind])[:3]
    ]
    if whole:
        rows.insert(0, EvidenceRow(kind="figure", name="times_as_long", value=ratio))
    return tuple(rows)
