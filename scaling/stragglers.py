"""Which rank the others lose step time to, and what it does meanwhile.

Being last is no guilt: in an undisturbed run one rank can be last in every collective, by microseconds. So the exposed
waits of the other ranks are dealt out to the rank they waited for, a step at a time; steps are the samples. A verdict
needs a median loss of at least 1% of the step. Raw wait is not used: waiting that compute hides costs no step time, and
every bucket waits again for one and the same delay.

What the rank did is where its own partition stands out against the other ranks' mean.
"""

import statistics
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from scaling.answer import Straggler
from scaling.intervals import Intervals, covered_before, difference, intersect, union
from scaling.kernels import KernelTable
from scaling.partition import OneRankShares, Partition

#: The share of a step that a rank must cost the others, in the median over steps.
GUILTY_FRACTION = 0.01
#: The share of the steps in which it must cost them more than any other rank does.
GUILTY_STEPS = 0.75


class AwaitedWaits(msgspec.Struct, frozen=True):
    """One rank's waits in order of their start: `[start, ready)` in ns, and the rank each was for."""

    start: tuple[int, ...]
    ready: tuple[int, ...]
    awaited: tuple[int, ...]


def exposed_wait_by_rank(shares: OneRankShares, waits: AwaitedWaits, transfer: Intervals) -> dict[int, list[int]]:
    """Return the exposed wait of one rank, ns a step, by the rank it waited for; the sum over ranks is the partition's.

    An instant of several waits belongs to the one that began first.
    """
    if not waits.start:
        return {}
    start, ready = np.array(waits.start, np.int64), np.array(waits.ready, np.int64)
    order = np.argsort(start, kind="stable")
    start, ready, awaited = start[order], ready[order], np.array(waits.awaited, np.int64)[order]
    exposed = difference(intersect(shares.exposed, union(Intervals(start, ready))), union(transfer))
    reach = np.concatenate((start[:1], np.maximum.accumulate(ready)[:-1]))
    own = np.minimum(np.maximum(start, reach), ready)
    edges = shares.windows.edges
    found: dict[int, list[int]] = {}
    for step in range(len(shares.windows)):
        left, right = edges[step], edges[step + 1]
        share = covered_before(exposed, np.clip(ready, left, right)) - covered_before(
            exposed, np.clip(own, left, right)
        )
        for rank in np.unique(awaited).tolist():
            found.setdefault(rank, [0] * len(shares.windows))[step] = int(share[awaited == rank].sum())
    return found


def name_stragglers(
    partitions: Mapping[int, Sequence[Partition]],
    lost: Mapping[int, Mapping[int, Sequence[int]]],
    kernels: Mapping[int, KernelTable],
) -> list[Straggler]:
    """Return the verdicts, worst first.

    `partitions`: by rank, a step each. `lost`: by waiting rank and awaited rank, exposed wait in ns a step.
    """
    ranks = sorted(partitions)
    if len(ranks) < 2:
        return []
    steps = min(len(partitions[rank]) for rank in ranks)
    step_ns = statistics.fmean(part.window for rank in ranks for part in partitions[rank][:steps])
    # loss[awaited][step]: mean over the other ranks, in ns
    loss = {rank: [0.0] * steps for rank in ranks}
    for waiting, found_waits in lost.items():
        for awaited, waits in found_waits.items():
            if awaited == waiting or awaited not in loss:
                continue
            for step, wait in enumerate(waits[:steps]):
                loss[awaited][step] += wait / (len(ranks) - 1)
    most = [max(loss[rank][step] for rank in ranks) for step in range(steps)]
    found = []
    for rank in ranks:
        typical = statistics.median(loss[rank]) if loss[rank] else 0.0
        worst = sum(loss[rank][step] == most[step] for step in range(steps))
        # ranks that wait for each other in turn are no stragglers: one that is holds the others up step after step
        if typical < GUILTY_FRACTION * step_ns or worst < GUILTY_STEPS * steps:
            continue
        found.append(
            Straggler(
                rank=rank,
                steps_last=worst,
                lost_ms=statistics.fmean(loss[rank]) / 1e6,
                verdict=_what_it_did(rank, partitions, kernels, steps),
            )
        )
    return sorted(found, key=lambda straggler: -straggler.lost_ms)


_DOING = {
    "compute": "slower compute",
    "memory": "more copying",
    "data": "loading data",
    "launch": "its host launches late",
    "queued": "idle on the device although work was enqueued",
}


def _what_it_did(
    rank: int, partitions: Mapping[int, Sequence[Partition]], kernels: Mapping[int, KernelTable], steps: int
) -> str:
    """Return in words what this rank does longer than the others, in ms a step."""
    others = [other for other in partitions if other != rank]
    excess = {}
    for part in _DOING:
        mine = statistics.fmean(getattr(step, part) for step in partitions[rank][:steps])
        theirs = statistics.fmean(getattr(step, part) for other in others for step in partitions[other][:steps])
        excess[part] = (mine - theirs) / 1e6
    part = max(excess, key=lambda part: excess[part])
    if excess[part] <= 0:
        return "arrives late, though no part of its own step is longer"
    if part == "compute" and (own := _kernel_of_its_own(rank, kernels, excess[part])):
        return f"its own delay: +{excess[part]:.2f} ms a step in {own}, which the others do not run"
    return f"{_DOING[part]}: +{excess[part]:.2f} ms a step"


def _kernel_of_its_own(rank: int, kernels: Mapping[int, KernelTable], excess_ms: float) -> str | None:
    """Return the kernel that explains most of the excess and runs on no other rank, if there is one."""
    mine = kernels.get(rank)
    if mine is None or mine.steps == 0:
        return None
    theirs = {name for other, table in kernels.items() if other != rank for name in table.names}
    own: dict[str, float] = {}
    for (name, _), time in mine.items():
        if name not in theirs:
            own[name] = own.get(name, 0.0) + time.total_ns / mine.steps / 1e6
    if not own:
        return None
    name = max(own, key=lambda name: own[name])
    return name.split("(")[0] if own[name] > excess_ms / 2 else None
