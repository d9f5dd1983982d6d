"""Cores that others have by turns, told by what operators take: most as long as ever, and a few many times as long.

An operator that computes is interrupted where others have the core, for some milliseconds, whatever it computes. A rank
with more to compute, or on slower cores, has all of its operators longer; so have batches that differ from step to
step. Which process has the cores no trace of the ranks tells. The threads that move data take their turns as well, and
nobody knows how long they would take: it is at least what the operators take beyond their shortest (but for what those
of undisturbed ranks do), and hosts beyond the other ranks', where all are interrupted.

Nor is it whom a turn hits: operators in proportion to how long they are. Where the same few are longer in most steps it
is something of theirs, such as fresh pages for what they write, which torch's profiler has a step's large tensors laid
into: of the excess of such windows 65 to 89% were in operators that were longer in more than half of the steps, and of
windows beside two busy processes 27 to 40%.
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from scalescope.scaling.evidence.interruptions import SHORTEST_NS
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.figures import CORES_BY_TURNS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.order import ranked, weight
from scalescope.scaling.findings.candidate import WORTH_SAYING, Scene, gained_ms
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.removal import Removal

#: Operators that take so long at their shortest are told from launches, ns; of so few of them, or steps, nothing is.
_LEAST_NS, _OPERATORS, _LEAST_STEPS = 100_000, 4, 3
#: In so many of the ranks' steps the typical one takes at most so many times its shortest, and all take so many times
#: as long together: undisturbed ranks on cores of their own have 1.1 of either.
_IN_MOST, _AS_EVER, _TOGETHER = 0.8, 1.25, 1.5
#: On a rank of which no other has the cores, all together take less than this.
_UNDISTURBED = 1.2
#: … and in the mean about so many times their shortest: that much of it is nobody's turn.
_BY_ITSELF = 1.1
#: Turns do not hit the same operators in most steps: no more than this share of what is longer is of such.
_OF_THE_SAME = 0.55
#: A finding that costs so much of the step for sure is what can be mended in the job itself.
_SURE = 0.03
#: What is told by how long messages take, on threads that wait for the same cores; unless it is so many a step.
_OF_MESSAGES: tuple[Code, ...] = (
    "small_buckets", "small_collectives", "needless_collectives", "slow_transfer", "late_bucket"
)  # fmt: skip
_MANY = 8


def with_shared_cores(scene: Scene, found: Sequence[Finding]) -> list[Finding]:
    """Return the findings with that of cores which others have by turns, in place of what hosts show of the same."""
    own = _shared_cores(scene, found)
    if own is None or any(one.code == "host_starved" and weight(one) >= weight(own) for one in found):
        return list(found)  # hosts tell as much of it
    others = [one for one in found if one.code != "host_starved" or one.rank != own.rank]
    return ranked([own, *(one for one in others if not _is_of_few_messages(one))])


def _is_of_few_messages(one: Finding) -> bool:
    return one.code in _OF_MESSAGES and max((row.calls or 0.0 for row in one.evidence), default=0.0) < _MANY


def _shared_cores(scene: Scene, found: Sequence[Finding]) -> Finding | None:
    """Return the finding where others have the ranks' cores by turns, and no fault of the job's own is sure."""
    if not scene.replayer.on_cpu or len(scene.side.steps) < _LEAST_STEPS:
        return None
    times = _times(scene)
    if len(times) < _OPERATORS:
        return None
    taken = np.stack(times)  # operators, ranks, steps
    least = taken.min(axis=(1, 2), keepdims=True)
    together = taken.sum(axis=(0, 2)) / (least.sum() * taken.shape[2])  # by rank
    typical = np.median(taken / least, axis=0)  # of each rank's step
    if float(np.quantile(typical, _IN_MOST)) > _AS_EVER or together.mean() < _TOGETHER:
        return None
    if _share_of_the_same(taken - least) > _OF_THE_SAME:
        return None
    everywhere = any(one.code == "host_starved" and one.rank is None for one in scene.host or ())
    change = Change(without=(Removal("uneven", ns=SHORTEST_NS), *((Removal("host"),) if everywhere else ())))
    longer_times = float(together.mean())
    ms = gained_ms(scene.replayer, change) * (longer_times - _BY_ITSELF) / (longer_times - 1)
    sure = [
        one
        for one in found
        if (one.low_ms or 0.0) > 0 and not (one.at_most or one.code == "host_starved" or _is_of_few_messages(one))
    ]
    if ms < WORTH_SAYING * scene.step_ms or any(weight(one) >= _SURE * scene.step_ms for one in sure):
        return None
    disturbed = [rank for rank, ratio in zip(scene.side.ranks, together.tolist(), strict=True) if ratio > _UNDISTURBED]
    longer = (taken - least).sum(axis=0) / 1e6  # ranks, steps
    often = (taken - least >= SHORTEST_NS).sum(axis=0)
    return Finding(
        code="host_starved",
        rank=disturbed[0] if len(disturbed) == 1 < len(scene.side.ranks) else None,
        ms=ms,
        low_ms=ms,
        high_ms=scene.step_ms,
        fraction=ms / scene.step_ms,
        evidence=(
            EvidenceRow(
                kind="figure",
                name=CORES_BY_TURNS,
                ms=statistics.fmean(longer.max(axis=0).tolist()),
                calls=float(often.max(axis=0).mean()),
                value=float(together.max()),
            ),
        ),
        remedy=Remedy(cure="free_cores"),
        backed="replay",
        at_least=True,
    )


def _share_of_the_same(longer: "np.ndarray") -> float:
    """Return which share of what operators take beyond their shortest (operators, ranks, steps) is of those that do so
    by an interruption's length in most steps.
    """
    often = (longer >= SHORTEST_NS).mean(axis=2) > 1 / 2
    return float((longer * often[:, :, None]).sum() / longer.sum())


def _times(scene: Scene) -> list["np.ndarray"]:
    """Return what each operator takes that all ranks run in all steps, ranks by steps, ns; of those that are long."""
    side, graph = scene.side, scene.replayer.graph
    taken: dict[tuple[int, str], dict[tuple[int, int], float]] = defaultdict(dict)
    for at, rank in enumerate(side.ranks):
        for at_step, step in enumerate(side.steps):
            own = side.launches[rank, step]
            for row, place in enumerate(own.place.tolist()):
                if place >= 0 and own.work_ns[row] > 0:
                    taken[place, graph.activities[own.activity[row]].name][at, at_step] = float(own.work_ns[row])
    shape = (len(side.ranks), len(side.steps))
    return [
        np.array([[cells[at, step] for step in range(shape[1])] for at in range(shape[0])])
        for cells in taken.values()
        if len(cells) == shape[0] * shape[1] and min(cells.values()) >= _LEAST_NS
    ]
