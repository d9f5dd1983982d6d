"""Where hosts compute: what one rank does beyond the others as one block, with its host's time in and around it.

A second forward and backward pass is of operators that the others run, too, and of some that they do not; between two
of them Python runs. Each is seen by itself: launched more often, launched alone, a host that stands still at a place
to which the others do not come. Dealt out among the three, none had the size of what the rank does.
"""

import statistics
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from scalescope.scaling.finding.figures import AROUND, BESIDES, RUN_THERE
from scalescope.scaling.finding.finding import EvidenceRow
from scalescope.scaling.findings.candidate import Candidate, Scene, gained_ms
from scalescope.scaling.findings.computing.extra_launches import Extra, extra_launches
from scalescope.scaling.findings.hosts.by_chance import may_be_chance
from scalescope.scaling.findings.hosts.filling_loops import as_filling
from scalescope.scaling.findings.hosts.same_place import host_at_ns, is_one_place
from scalescope.scaling.rank.timeline import COMMUNICATION
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.ranks.extra import BEYOND, Beyond, extra_rows
from scalescope.scaling.replay.removal import Removal

#: Of the work that a rank alone launches, so much lies right beside what it launches more often, where it is one block;
#: of what a stall or a block would bring, so much goes with the other one; and a single gap is so much of a block's
#: time where it is a stall beside a few operators.
_MOST = 0.5
#: What Python takes around a block is told from this share of what its operators take on.
_TOLD = 0.3


def with_blocks(scene: Scene, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates with what each rank does beyond the others as one of them, where it is one block."""
    found = list(candidates)
    if not scene.replayer.on_cpu:
        return found
    for rank in scene.side.ranks:
        found = [
            as_filling(scene, one, own.activities, own.mean_ms) if (own := _launched(scene, rank, one)) else one
            for one in _with_block(scene, rank, found)
        ]
        for block in [one for one in found if one.rank == rank and one.seen is None and _whats(one, rank)]:
            found = _with_stall(scene, rank, block, found)
    return found


def _whats(one: Candidate, rank: int) -> list[Beyond]:
    """Return what kinds of launches beyond the others' a rank's candidate is of; none where it is of anything else."""
    own = [removal.what for removal in one.removals if removal.rank == rank]
    return [what for what in BEYOND if what in own] if len(own) == len(one.removals) and set(own) <= {*BEYOND} else []


def _launched(scene: Scene, rank: int, one: Candidate) -> Extra | None:
    """Return what a rank's candidate is of, where that is launches beyond the others' and nothing else."""
    whats = _whats(one, rank) if one.rank == rank else []
    return extra_launches(scene, rank, whats) if whats else None


def _with_block(scene: Scene, rank: int, candidates: list[Candidate]) -> list[Candidate]:
    parts = [one for one in candidates if one.rank == rank and one.seen is None and _whats(one, rank)]
    if len(parts) == 2 and _is_one_block(scene, rank):
        whole = extra_launches(scene, rank, BEYOND)
        larger = max(parts, key=lambda one: extra_launches(scene, rank, _whats(one, rank)).mean_ms)
        counted = [row for one in parts for row in one.evidence if row.name == BESIDES]
        merged = replace(
            larger,
            removals=tuple(Removal(what, rank) for what in BEYOND),
            evidence=(*whole.evidence, *(whole.counted if counted else ())),
            least_share=min(one.least_share for one in parts),
        )
        candidates = [merged if one is larger else one for one in candidates if one is larger or one not in parts]
    return [
        replace(one, evidence=(*one.evidence, *_around(scene, rank, _whats(one, rank))))
        if one.rank == rank and _whats(one, rank)
        else one
        for one in candidates
    ]


def _is_one_block(scene: Scene, rank: int) -> bool:
    """Tell whether most of what a rank alone launches stands right beside what it launches more often."""
    side, graph = scene.side, scene.replayer.graph
    beside = whole = 0.0
    for step in side.steps:
        own = set(extra_rows(graph, side, rank, step, "own"))
        more = set(extra_rows(graph, side, rank, step, "more"))
        work = side.launches[rank, step].work_ns
        for block in _blocks(scene, rank, step):
            alone = float(sum(work[row] for row in block if row in own))
            whole += alone
            beside += alone if any(row in more for row in block) else 0.0
    return whole > 0 and beside >= _MOST * whole


def _blocks(scene: Scene, rank: int, step: int) -> Iterator[list[int]]:
    """Yield runs of a rank's launches in a step between two that the others make, too."""
    own, block = scene.side.launches[rank, step], list[int]()
    for row, place in enumerate(own.stands_in.tolist()):
        if place < 0 and scene.replayer.graph.activities[own.activity[row]].kind != COMMUNICATION:
            block.append(row)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _around(scene: Scene, rank: int, whats: Sequence[Beyond]) -> Iterator[EvidenceRow]:
    """Yield what a host takes beside the operators for what it launches beyond the others, where that is much of it."""
    side, graph = scene.side, scene.replayer.graph
    around, work = [], []
    for step in side.steps:
        rows = [row for what in whats for row in extra_rows(graph, side, rank, step, what)]
        around.append(float(np.sum(side.launches[rank, step].host_ns[rows])) / 1e6 if rows else 0.0)
        work.append(float(np.sum(side.launches[rank, step].work_ns[rows])) / 1e6 if rows else 0.0)
    ms = statistics.fmean(around or [0.0])
    if scene.worth_a_look(ms) and ms >= _TOLD * statistics.fmean(work):
        yield EvidenceRow(kind="figure", name=AROUND, ms=ms)


def _with_stall(scene: Scene, rank: int, block: Candidate, candidates: list[Candidate]) -> list[Candidate]:
    """Return the candidates with a rank's stall and its block as one of them, where either would take the other out, or
    one edit of the script takes out both.
    """
    stall = next((one for one in candidates if one.rank == rank and _is_stall(one)), None)
    if stall is None:
        return candidates
    changes = [Change(without=one) for one in (block.removals, stall.removals, (*block.removals, *stall.removals))]
    scene.replayer.work_out(changes, quick=True, near=True)
    by_block, by_stall, by_both = (gained_ms(scene.replayer, one) for one in changes)
    if by_both - by_block >= _MOST * by_stall:  # no part of the block
        if may_be_chance(scene, stall) or not is_one_place(scene, rank, block, _whats(block, rank), stall):
            return candidates
        whole = _at_one_place(scene, rank, block, stall, stalls_longer=by_stall > by_block)
        return [whole if one is block else one for one in candidates if one is not stall]
    if _is_one_gap(scene, rank, _whats(block, rank)):
        return [one for one in candidates if one is not block] if by_both - by_stall < _MOST * by_block else candidates
    whole = replace(block, removals=(*block.removals, *stall.removals))
    return [whole if one is block else one for one in candidates if one is not stall]


def _at_one_place(scene: Scene, rank: int, block: Candidate, stall: Candidate, *, stalls_longer: bool) -> Candidate:
    """Return a rank's launches and its stall at one place as one candidate, told as the one which is more of it."""
    whats = _whats(block, rank)
    own = extra_launches(scene, rank, whats)
    whole = replace(
        stall if stalls_longer else block,
        removals=(*block.removals, *stall.removals),
        in_each_ms=_added(own.ms, stall.in_each_ms),
        beyond_ms=(),  # of neither is it chance that it is there
        least_share=min(block.least_share, stall.least_share),
    )
    if not stalls_longer:
        host_ms = statistics.fmean(host_at_ns(scene, rank, whats)) / 1e6
        rest = [row for row in block.evidence if row.name != AROUND]
        return replace(whole, evidence=(*rest, EvidenceRow(kind="figure", name=AROUND, ms=host_ms)))
    # of nothing but what is read, and told as that, no row is left
    ran = [EvidenceRow(kind="figure", name=f"{RUN_THERE} {row.name}", ms=own.mean_ms) for row in own.evidence[:1]]
    counted = [row for row in block.evidence if row.name == BESIDES]
    beside = next((row.name for row in own.evidence), None)
    remedy = replace(stall.remedy, beside=beside) if stall.remedy is not None else None
    return replace(whole, evidence=(*stall.evidence, *ran, *counted), remedy=remedy)


def _added(own_ms: Sequence[float], stalled_ms: Sequence[float]) -> tuple[float, ...]:
    """Return what launches and a stall take together in each step that the stall is known of; () where it is not.

    Fewer steps are replayed than a window has: in the others the launches take their mean.
    """
    if len(own_ms) != len(stalled_ms):
        own_ms = [statistics.fmean(own_ms or [0.0])] * len(stalled_ms)
    return tuple(map(sum, zip(own_ms, stalled_ms, strict=True)))


def _is_stall(one: Candidate) -> bool:
    return one.code == "host_stall" and one.seen is None and all(removal.what == "gaps" for removal in one.removals)


def _is_one_gap(scene: Scene, rank: int, whats: Sequence[Beyond]) -> bool:
    """Tell whether most of what a block takes is one gap of the host in each step: a stall beside a few operators."""
    side, graph = scene.side, scene.replayer.graph
    longest, whole = [], []
    for step in side.steps:
        rows = [row for what in whats for row in extra_rows(graph, side, rank, step, what)]
        own = side.launches[rank, step]
        longest.append(float(np.max(own.host_ns[rows])) if rows else 0.0)
        whole.append(float(np.sum(own.host_ns[rows]) + np.sum(own.work_ns[rows])) if rows else 0.0)
    return statistics.median(longest) >= _MOST * statistics.median(whole) > 0
