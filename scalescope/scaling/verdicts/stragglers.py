"""Which rank the others lose step time to, and what it does meanwhile.

Being last is no guilt: in an undisturbed run one rank can be last in every collective, by microseconds. So the exposed
waits of the other ranks are dealt out to the rank they waited for, a step at a time; steps are the samples. A verdict
needs a median loss of at least 1% of the step. Raw wait is not used: waiting that compute hides costs no step time, and
every bucket waits again for one and the same delay.

What the rank did is where its own partition stands out against the other ranks' mean. Two things would make that figure
smaller than the truth. The others' compute takes longer while their collectives wait, which hides a part of what this
rank computes more: so kernels that it alone runs, or runs more often, are counted by themselves. And the last step of a
window ends with its last activity, so what a host does between two steps (it loads data) is not in it: idle time is
averaged over the other steps. Nor does the last step take part in the count where there are others.
"""

import statistics
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import numpy as np

from scalescope.scaling.finding.codes import Code
from scalescope.scaling.rank.kernels import CARRIED, KernelTable
from scalescope.scaling.rank.partition import OneRankShares, Partition
from scalescope.scaling.trace.intervals import Intervals, covered_before, difference, intersect, union
from scalescope.scaling.trace.kernel_names import short_name

#: The share of a step that a rank must cost the others, in the median over steps.
STRAGGLER_FRACTION = 0.01
#: The share of the steps in which it must cost them so much.
STRAGGLER_STEPS = 0.75


#: What a late rank does longer than the others is why it is late from this share of what it costs them on; a part of it
#: may be hidden, as the others' compute is slower while they wait.
_EXPLAINS = 0.2
#: A rank's batches are larger from this share on, and are why its compute is longer by up to twice as much.
_LARGER, _MORE_EXPLAINS = 0.035, 0.5
#: Where the others run as much of something instead, of what a rank runs beyond them, ranks chose unlike kernels.
_INSTEAD = 0.1
#: More of what all ranks do, as another micro-batch is, is more of kernels that make up this share of the step.
_OF_PROGRAM = 0.5
#: A rank that nobody waits for, as another is as late, does so much of what it waits less than the ranks that do.
_SO_MUCH = 0.5
#: … and waits less by so much of what those wait: ranks that wait for the same one do not wait for as long.
_MUCH = 0.25
#: The latest of several ranks that hide each other waits for no more than this share of what the others wait.
_WAITS_ITSELF = 0.25
#: Steps that a verdict needs.
_LEAST_STEPS = 2


#: Calls of each operator that multiplies, and the elements of what in it grows with the batch.
Multiplied = Mapping[str, tuple[int, int]]


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


class Late(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that the others wait for, step after step, and where its own step is longer than theirs."""

    rank: int
    code: Code
    lost_ms: tuple[float, ...]  # in each step that a next one bounds: the mean other rank's exposed wait for it
    part: str  # of the partition, in which it is longer; "" where none is
    excess_ms: float  # by so much, a step
    beyond_ms: tuple[float, ...] = ()  # of that part in each step, below 0 where it is the others' that is longer
    kernel: str | None = None  # that it runs and the others do not, or less often
    besides: int | None = None  # launches that it makes and the others do not, as many in every step
    besides_known: int = 0  # of them, those of kernels that the others run, too
    inputs: float | None = None  # of a rank with more work by its shapes: how many times the others'
    hides: bool = False  # several ranks are late, and the others wait for the latest alone: `lost_ms` is how late it is
    unawaited: bool = False  # hardly anybody waits for it, as another rank is as late


class OwnWork(msgspec.Struct, frozen=True):
    """What one rank computes that the others do not."""

    name: str  # of the kernel that most of it is
    of_name_ms: float  # a step, of this kernel
    milliseconds: float  # of all of them
    alone: bool  # no other rank runs such kernels at all, for most of that time, or they are few of what it runs
    besides: int | None  # launches that the others do not make, where they are as many in every step
    known: int  # of them, those of kernels that the others run


def name_late_ranks(
    partitions: Mapping[int, Sequence[Partition]],
    lost: Mapping[int, Mapping[int, Sequence[int]]],
    kernels: Mapping[int, KernelTable],
    open_ended: Set[int] = frozenset(),
    multiplied: Mapping[int, Multiplied] = MappingProxyType({}),
) -> list[Late]:
    """Return the late ranks, the one that costs most first.

    `partitions`: by rank, a step each. `lost`: by waiting rank and awaited rank, exposed wait in ns a step.
    `open_ended`: the ranks whose last step no next one bounds: it counts only where there is no other. `multiplied`: by
    rank, where shapes were recorded.
    """
    ranks = sorted(partitions)
    if len(ranks) < 2:
        return []
    bounded = bounded_only(partitions, open_ended)
    steps = min(len(bounded[rank]) for rank in ranks)
    if steps < _LEAST_STEPS:
        return []  # of one step nobody can tell what is usual
    step_ns = statistics.fmean(part.window for rank in ranks for part in bounded[rank][:steps])
    # loss[awaited][step]: mean over the other ranks, in ns
    loss = {rank: [0.0] * steps for rank in ranks}
    waits_ns = {rank: [0.0] * steps for rank in ranks}
    for waiting, found_waits in lost.items():
        for awaited, waits in found_waits.items():
            if awaited == waiting or awaited not in loss:
                continue
            for step, wait in enumerate(waits[:steps]):
                loss[awaited][step] += wait / (len(ranks) - 1)
                if waiting in waits_ns:
                    waits_ns[waiting][step] += wait
    awaited_ranks = [rank for rank in ranks if _costs_in_most(loss[rank], STRAGGLER_FRACTION * step_ns)]
    seen = _Seen(bounded, kernels, multiplied, step_ns)
    together = _late_together(awaited_ranks, waits_ns, seen)
    if together:
        return sorted(together, key=lambda late: -statistics.fmean(late.lost_ms))
    found = []
    for rank in awaited_ranks:
        # several ranks may be late in one step: each counts by what it costs, whoever costs most
        found += _named(rank, tuple(ns / 1e6 for ns in loss[rank]), seen, awaited_ranks)
    return sorted(found, key=lambda late: -statistics.fmean(late.lost_ms))


class _Seen(NamedTuple):
    """What is known of the ranks' own steps."""

    bounded: Mapping[int, Sequence[Partition]]
    kernels: Mapping[int, KernelTable]
    multiplied: Mapping[int, Multiplied]
    step_ns: float

    def beside(self, rank: int, late: Sequence[int]) -> "_Seen":
        """Return the same of a rank and of those that are not late; of all, where no other is left."""
        left = {one for one in self.bounded if one == rank or one not in late}
        if len(left) < 2:
            return self
        bounded, kernels, multiplied = (
            {one: own for one, own in table.items() if one in left}
            for table in (self.bounded, self.kernels, self.multiplied)
        )
        return _Seen(bounded, kernels, multiplied, self.step_ns)  # type: ignore[arg-type]


def _costs_in_most(ns: Sequence[float], least_ns: float) -> bool:
    """Tell whether so much is lost in nearly all of the steps, and in the median one."""
    return sum(one >= least_ns for one in ns) >= STRAGGLER_STEPS * len(ns) and statistics.median(ns) >= least_ns


def _named(rank: int, lost_ms: tuple[float, ...], seen: _Seen, late: Sequence[int]) -> list[Late]:
    """Return a late rank with what it does longer than the ranks that are not late."""
    beside = seen.beside(rank, late)
    found = _late(rank, lost_ms, beside.bounded, beside.kernels, beside.multiplied)
    return _parted(found, _work_of_its_own(rank, beside.kernels), seen.step_ns)


def _late_together(awaited: Sequence[int], waits_ns: Mapping[int, Sequence[float]], seen: _Seen) -> list[Late]:
    """Return late ranks of which one hides the others: hardly anybody waits for those, nor do they wait themselves.

    How late such a rank is, is what it waits less than the ranks that are not late. Nothing where one rank is late, or
    several at unlike places of a step, which wait for each other.
    """
    if not awaited or len(waits_ns) < 3:
        return []
    most = [max(step) for step in zip(*waits_ns.values(), strict=True)]
    less = {rank: [top - own for top, own in zip(most, waits, strict=True)] for rank, waits in waits_ns.items()}
    least_ns = max(_MUCH * statistics.fmean(most), STRAGGLER_FRACTION * seen.step_ns)
    likely = [one for one in waits_ns if one in awaited or _costs_in_most(less[one], least_ns)]
    found: list[Late] = []
    for rank in likely:
        own = _named(rank, tuple(ns / 1e6 for ns in less[rank]), seen, likely)
        found += own if rank in awaited or _does_so_much(own) else []
    if not all(one.part for one in found):
        return []  # of whom nothing tells why it is late, nothing tells either that it is late beside another one
    late = {one.rank for one in found}
    left = [rank for rank in waits_ns if rank not in late]
    if len(late) < 2 or not left:
        return []
    theirs = [statistics.fmean(waits_ns[rank][step] for rank in left) for step in range(len(most))]
    latest = min(late, key=lambda rank: statistics.fmean(waits_ns[rank]))
    if statistics.fmean(waits_ns[latest]) > _WAITS_ITSELF * statistics.fmean(theirs):
        return []
    told = []
    for rank in sorted(late):
        later = tuple(max(top - own, 0.0) / 1e6 for top, own in zip(theirs, waits_ns[rank], strict=True))
        told += [
            msgspec.structs.replace(one, hides=True, unawaited=rank not in awaited)
            for one in _named(rank, later, seen, sorted(late))
        ]
    return told


def _does_so_much(own: Sequence[Late]) -> bool:
    """Tell whether what a rank does longer than the others is about what it waits less than they do."""
    return sum(one.excess_ms for one in own) >= _SO_MUCH * sum(statistics.fmean(one.lost_ms) for one in own)


def _parted(late: Late, own: OwnWork | None, step_ns: float) -> list[Late]:
    """Return a late rank whose compute is longer, and by itself what of that it was counted to do beyond the others.

    Machines make compute longer by chance, and by more than what a rank has to do; that it does, chance does not make.
    """
    if late.part != "compute" or late.kernel is not None or late.inputs is not None or own is None or not own.besides:
        return [late]
    if own.milliseconds * 1e6 < STRAGGLER_FRACTION * step_ns:
        return [late]
    waited = tuple(min(lost, own.milliseconds) for lost in late.lost_ms)
    rest = tuple(lost - one for lost, one in zip(late.lost_ms, waited, strict=True))
    beyond = tuple(ms - own.milliseconds for ms in late.beyond_ms)
    excess = max(late.excess_ms - own.milliseconds, 0.0)
    counted = _of_its_own(late.rank, waited, own)
    return [counted, msgspec.structs.replace(late, lost_ms=rest, excess_ms=excess, beyond_ms=beyond)]


def _of_its_own(rank: int, lost_ms: tuple[float, ...], own: OwnWork) -> Late:
    return Late(
        rank=rank,
        code="own_work" if own.alone else "more_work",
        lost_ms=lost_ms,
        part="compute",
        excess_ms=own.of_name_ms,
        kernel=short_name(own.name),
        besides=own.besides,
        besides_known=own.known,
    )


def bounded_only(partitions: Mapping[int, Sequence[Partition]], open_ended: Set[int]) -> dict[int, list[Partition]]:
    """Return each rank's steps that a next one bounds; of a rank that has none, its only one."""
    return {
        rank: list(steps[:-1] if rank in open_ended and len(steps) > 1 else steps)
        for rank, steps in sorted(partitions.items())
    }


#: The parts in which a rank's own step may be longer, and what each says of it. Of a host that launches late it is not
#: known here whether it has more to do than the others'.
DOING: dict[str, Code] = {
    "compute": "slower_compute",
    "memory": "copies",
    "data": "data_loading",
    "launch": "host_stall",
    "queued": "unsteady",
}


def _late(
    rank: int,
    lost_ms: tuple[float, ...],
    bounded: Mapping[int, Sequence[Partition]],
    kernels: Mapping[int, KernelTable],
    multiplied: Mapping[int, Multiplied],
) -> Late:
    """Return what a late rank does longer than the others, in ms a step."""
    others = [other for other in bounded if other != rank]
    excess = {}
    for part in DOING:
        mine = statistics.fmean(getattr(step, part) for step in bounded[rank])
        theirs = statistics.fmean(getattr(step, part) for other in others for step in bounded[other])
        excess[part] = (mine - theirs) / 1e6
    own = _work_of_its_own(rank, kernels)
    slower = excess["compute"]
    if own is not None:
        excess["compute"] = max(slower, own.milliseconds)
    part = max(excess, key=lambda part: excess[part])
    if excess[part] <= _EXPLAINS * statistics.fmean(lost_ms):
        return Late(rank=rank, code="unsteady", lost_ms=lost_ms, part="", excess_ms=0.0)
    if part == "compute" and own is not None and own.milliseconds > slower / 2:
        return _of_its_own(rank, lost_ms, own)
    beyond = tuple(
        (getattr(step, part) - statistics.fmean(getattr(bounded[other][at], part) for other in others)) / 1e6
        for at, step in enumerate(bounded[rank][: len(lost_ms)])
    )
    found = Late(rank=rank, code=DOING[part], lost_ms=lost_ms, part=part, excess_ms=excess[part], beyond_ms=beyond)
    if part == "compute":
        theirs = statistics.fmean(step.compute for other in others for step in bounded[other])
        ratio = times_the_inputs(multiplied, rank)
        if ratio is not None and explains(ratio, 1 + 1e6 * slower / theirs if theirs else 1.0):
            return msgspec.structs.replace(found, code="more_work", inputs=ratio, beyond_ms=())
    return found


def times_the_inputs(multiplied: Mapping[int, Multiplied], rank: int) -> float | None:
    """Return how many times the elements of the median other rank a rank multiplies; None where shapes do not tell.

    By the operator that says least: a rank with other layers has more of some, and no more of others.
    """
    if rank not in multiplied or len(multiplied) < 2:
        return None
    ratios = []
    for name in set.intersection(*map(set, multiplied.values())):
        means = {one: elements / calls for one, own in multiplied.items() for calls, elements in (own[name],)}
        ratios.append(means[rank] / statistics.median_high([mean for one, mean in means.items() if one != rank]))
    return min(ratios, default=None)


def times_all_inputs(multiplied: Mapping[int, Multiplied], rank: int) -> float | None:
    """Return how many times the median other rank's elements a rank multiplies in as many steps, in all calls together.

    None where one of its operators does not multiply more than theirs, or those that it calls as often do not. These
    tell how much larger the inputs are: what goes round in a loop has calls beside it, and of a like size.
    """
    others = [own for one, own in multiplied.items() if one != rank]
    if rank not in multiplied or not others:
        return None
    of_all, as_often = [], []
    for name in sorted(set.intersection(*map(set, multiplied.values()))):
        calls, elements = multiplied[rank][name]
        of_all.append(elements / statistics.median_high([own[name][1] for own in others]))
        if all(own[name][0] == calls for own in others):
            as_often.append(of_all[-1])
    least = min(of_all, default=0.0)
    return None if least <= 1 + _LARGER else min(as_often, default=least)


def explains(times_the_inputs: float, times_as_long: float) -> bool:
    """Tell whether a rank that works on so many times as much may well compute for so many times as long."""
    return times_the_inputs - 1 >= max(_LARGER, _MORE_EXPLAINS * (times_as_long - 1))


def _work_of_its_own(rank: int, kernels: Mapping[int, KernelTable]) -> OwnWork | None:
    """Return what a rank runs more often than every other one does, by the kernel that is longest; None if nothing.

    Ranks may choose different kernels for the same work, so what all others run more often than this rank is taken off.
    """
    mine = _by_name(kernels.get(rank))
    theirs = [_by_name(table) for other, table in kernels.items() if other != rank and table.steps]
    if not mine or not theirs:
        return None
    nothing = _Runs(0.0, 0.0, True)
    more: dict[str, float] = {}
    instead = 0.0
    counts = [0, 0]  # of kernels that the others do not run, that they do
    as_many = True
    for name in mine.keys() | {name for one in theirs for name in one}:
        own, others = mine.get(name, nothing), [one.get(name, nothing) for one in theirs]
        most = max(one.runs for one in others)
        excess = own.ms - statistics.fmean(one.ms for one in others)
        if own.runs > most:
            more[name] = excess
            counts[most > 0] += round(own.runs - most)
            as_many = as_many and all(one.as_many for one in (own, *others))
        elif own.runs < min(one.runs for one in others):
            instead -= excess
    if not more:
        return None
    longest = max(more, key=lambda name: more[name])
    whole, off = sum(max(ms, 0.0) for ms in more.values()), max(instead, 0.0)
    if more[longest] - off <= 0:
        return None
    alone = sum(max(ms, 0.0) for name, ms in more.items() if not any(name in one for one in theirs))
    program = sum(runs.ms for one in theirs for runs in one.values())
    of_program = sum(one.get(name, nothing).ms for one in theirs for name in more)
    counted = as_many and off <= _INSTEAD * whole
    return OwnWork(
        name=longest,
        of_name_ms=more[longest] - off,
        milliseconds=whole - off,
        alone=alone > whole / 2 or (counted and of_program < _OF_PROGRAM * program),
        besides=sum(counts) if counted else None,
        known=counts[1],
    )


class _Runs(NamedTuple):
    """How often a kernel runs in a step, for how many ms, and whether as often in every one."""

    runs: float
    ms: float
    as_many: bool


def _by_name(table: KernelTable | None) -> dict[str, _Runs]:
    """Return how often each kernel runs in a step, and for how long."""
    if table is None or table.steps == 0:
        return {}
    found: dict[str, _Runs] = {}
    for (name, _), kernel in table.items():
        if name == CARRIED:
            continue
        runs, ms, as_many = found.get(name, _Runs(0.0, 0.0, True))
        found[name] = _Runs(
            runs + kernel.steps / table.steps,
            ms + kernel.total_ns / table.steps / 1e6,
            as_many and kernel.steps == table.steps,
        )
    return found
