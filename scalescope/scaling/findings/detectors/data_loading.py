"""Batches that are not there when they are asked for: on one rank alone, or on all of them."""

import statistics
from collections.abc import Iterator

from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.replay.removal import Removal

#: One rank's loading is its own where it takes so many times what the others' does.
_TIMES = 2.0


def data_loading(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each rank that loads for longer than the others, or one for all ranks that load alike."""
    side = scene.side
    taken = {
        rank: statistics.fmean(float(side.launches[rank, step].data_ns.sum()) / 1e6 for step in side.steps)
        for rank in side.ranks
    }
    alone = [
        rank
        for rank, ms in taken.items()
        if len(taken) > 1
        and scene.worth_a_look(ms)
        and ms > _TIMES * statistics.median_low([other for one, other in taken.items() if one != rank])
    ]
    for rank in alone:
        yield _candidate(scene, rank, taken[rank])
    if not alone and scene.worth_a_look(max(taken.values(), default=0.0)):
        yield _candidate(scene, None, statistics.fmean(taken.values()))


def _candidate(scene: Scene, rank: int | None, ms: float) -> Candidate:
    # null: as many as cores are left, which decoding images can use and cutting tokens cannot
    images = scene.facts is not None and scene.facts.dataset == "image_folder"
    return Candidate(
        code="data_loading",
        rank=rank,
        removals=(Removal("data", rank),),
        evidence=(EvidenceRow(kind="annotation", name="loading", ms=ms),),
        remedy=Remedy(
            cure="load_ahead", overrides=scene.overrides("data.workers=null" if images else "data.workers=4")
        ),
    )
