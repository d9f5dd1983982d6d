"""A rank whose host takes longer than the others' do for the same launches: a gap, or everything."""

import statistics
from collections.abc import Iterator

from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import WORTH_A_LOOK, Candidate, Scene
from scalescope.scaling.replay.removal import Removal, host_excess
from scalescope.scaling.trace.kernel_names import short_name

#: Hosts of one machine differ by less than this in what the same launches take them.
_NATURAL = 0.3


def host_gaps(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each rank whose host is held up in gaps that the others do not have."""
    for rank in scene.side.ranks if len(scene.side.ranks) > 1 else ():
        if statistics.fmean(_per_step(scene, rank, gaps_only=True)) >= WORTH_A_LOOK * scene.step_ms:
            yield Candidate(
                code="host_stall",
                rank=rank,
                removals=(Removal("gaps", rank),),
                evidence=_longest_gaps(scene, rank),
                remedy=Remedy(cure="look_at_host"),
            )


def host_late(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each rank whose host is held up in gaps, or takes much longer for all that it does."""
    yield from host_gaps(scene)
    for rank in scene.side.ranks if len(scene.side.ranks) > 1 else ():
        gaps = _per_step(scene, rank, gaps_only=True)
        mine, theirs = _host_ms(scene, rank)
        everywhere = mine - statistics.fmean(gaps) - theirs
        if everywhere > _NATURAL * theirs and scene.worth_a_look(everywhere):
            yield Candidate(
                code="host_starved",
                rank=rank,
                removals=(Removal("host", rank),),
                evidence=(EvidenceRow(kind="figure", name="host_ms", ms=mine, others_ms=theirs),),
                remedy=Remedy(cure="free_cores"),
            )


def _per_step(scene: Scene, rank: int, *, gaps_only: bool) -> list[float]:
    return [
        sum(ns for _, ns in host_excess(scene.side, rank, step, gaps_only=gaps_only)) / 1e6 for step in scene.side.steps
    ]


def _host_ms(scene: Scene, rank: int) -> tuple[float, float]:
    """Return what a rank's host and what the others' take for the launches in common, ms a step, without loading."""
    side = scene.side
    mine = theirs = 0.0
    for step in side.steps:
        own = side.launches[rank, step]
        others = side.theirs(rank, step, "host_ns") - side.theirs(rank, step, "data_ns")
        known = others == others
        mine += float((own.host_ns - own.data_ns)[known].sum()) / 1e6
        theirs += float(others[known].sum()) / 1e6
    steps = max(1, len(side.steps))
    return mine / steps, theirs / steps


def _longest_gaps(scene: Scene, rank: int) -> tuple[EvidenceRow, ...]:
    """Return what the longest gaps are before, by the launch that ends them."""
    side, graph = scene.side, scene.replayer.graph
    time: dict[str, list[float]] = {}
    for step in side.steps:
        own = side.launches[rank, step]
        for row, ns in host_excess(side, rank, step, gaps_only=True):
            time.setdefault(short_name(graph.activities[own.activity[row]].name), []).append(ns / 1e6)
    steps = max(1, len(side.steps))
    longest = sorted(time.items(), key=lambda item: -sum(item[1]))[:3]
    return tuple(
        EvidenceRow(kind="figure", name=f"gap_before {name}", ms=sum(ms) / steps, calls=len(ms) / steps)
        for name, ms in longest
    )
