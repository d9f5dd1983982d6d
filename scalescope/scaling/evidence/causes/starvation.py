"""Whose host does not get the time that it needs: its cores, or the interpreter's lock, are shared with others.

Two signs. A host that is interrupted: again and again it stands still for a millisecond or so, at places that take
microseconds in the other steps; undisturbed hosts are never. And a host on which every operator takes longer than on
the other ranks by much the same factor. Hosts of one kind differ by up to twice for nobody's doing, and more while a
profiler records, so the second sign needs more than that where a device computes; operators that compute on the host
itself differ less.

Where interruptions last Python's switch interval, it is no core that is lacking: another thread of the process holds
the interpreter's lock, and the host waits for it wherever Python runs.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from scalescope.scaling.evidence.causes.common_steps import CommonSteps, against_others
from scalescope.scaling.evidence.causes.pauses import without_pauses
from scalescope.scaling.evidence.host_cause import HostCause, HostFigure
from scalescope.scaling.evidence.host_evidence import HostEvidence
from scalescope.scaling.trace.intervals import Ints

#: The share of a step that interruptions take, in the mean; the share of the steps that have one; and at how many
#: places they are at least.
_SHARE = 0.01
_STEPS = 0.5
_PLACES = 3
#: With so few in all it may be chance.
_LEAST_COUNT = 3
#: Without another rank that tells what is usual: at how many places, how often a step, and in which share of the steps.
_PLACES_ALONE, _COUNT_ALONE, _STEPS_ALONE = 6, 2.0, 0.75
#: How many times as long operators take, in the weighted median, on the host of a device and where they compute.
_SLOWER, _SLOWER_ON_CPU = 2.5, 1.3
#: The share of the operators' usual time in those that are slower by at least half of that.
_ALIKE = 0.75


def starved_causes(common: CommonSteps, pauses: Sequence[HostCause] = ()) -> list[HostCause]:
    """Return a cause for each rank whose host is interrupted or slow, and one for interruptions that all ranks have.

    `pauses`: stalls in some steps, which have a place and are nobody's turn on a core.
    """
    found = []
    pauses = [one for one in pauses if one.place is None or not one.place.is_collector]  # no interruption to begin with
    lost = without_pauses(common, pauses, common.table(lambda one: one.interruptions.ns if one.interruptions else None))
    count = common.table(lambda one: one.interruptions.count if one.interruptions else None)
    places = [own.places if (own := one.interruptions) else 0 for one in common.by_rank.values()]
    for cause in pauses:
        for at in (at for at, rank in enumerate(common.ranks) if cause.rank in (None, rank)):
            count[at] = np.maximum(count[at] - (np.array(cause.ns, np.int64) > 0), 0)
            places[at] -= 1
            if cause.opening:  # whatever else interrupts that step is recording's, too
                lost[at, 0] = count[at, 0] = 0
    beyond = against_others(lost) if len(common.ranks) > 1 else lost
    more = np.maximum(beyond, 0)
    operators = _Operators(common)
    locked = _locked(common)
    found += locked or _alone(common)
    for at, rank in enumerate(common.ranks):
        if any(one.rank in (None, rank) for one in locked):
            continue
        if _interrupted(common, more[at], count[at], places[at]):
            others_ns = float(np.delete(lost, at, axis=0).mean())
            found.append(_cause(common, rank, [at], more[at], (lost, count), others_ns, beyond[at]))
        elif len(common.ranks) > 1 and (slow := _slower(common, rank, operators)) is not None:
            found.append(slow)
    base = lost.min(axis=0)
    if any(one.rank is None for one in locked):
        return found
    if len(common.ranks) > 1 and base.mean() >= 2 * _SHARE * common.step_ns and (base > 0).mean() >= _STEPS:
        found.append(_cause(common, None, list(range(len(common.ranks))), base, (lost, count)))
    return found


def _locked(common: CommonSteps) -> list[HostCause]:
    """Return a cause for each rank whose host waits for the interpreter's lock, or one for all where all do.

    `ns`: all that it stands still beyond the others; of all ranks, the waits alone.
    """
    waits = common.table(lambda one: one.lock_waits.ns if one.lock_waits else None)
    those = [at for at in range(len(common.ranks)) if waits[at].mean() >= _SHARE * common.step_ns]
    idle = common.table(lambda one: one.gap_ns)
    if len(those) == len(common.ranks):
        own = tuple((rank, round(float(waits[at].mean()))) for at, rank in enumerate(common.ranks))
        return [_of_lock(common, None, those, waits.min(axis=0), own_ns=own)]
    more = np.maximum(against_others(idle), 0)
    return [_of_lock(common, common.ranks[at], [at], np.maximum(more[at], waits[at])) for at in those]


def _of_lock(
    common: CommonSteps, rank: int | None, rows: list[int], ns: Ints, own_ns: tuple[tuple[int, int], ...] = ()
) -> HostCause:
    count = common.table(lambda one: one.lock_waits.count if one.lock_waits else None)
    figure = HostFigure(kind="lock_waits", ns=float(ns.mean()), count=float(count[rows].mean()))
    return HostCause(
        code="host_starved", rank=rank, steps=common.steps, ns=tuple(ns.tolist()), own_ns=own_ns, evidence=(figure,)
    )


def _alone(common: CommonSteps) -> list[HostCause]:
    """Return the cause of a lone rank whose host is interrupted again and again, in nearly all steps and everywhere.

    Of 26 undisturbed hosts beside an H200 the most interrupted one was so twice in three steps, at three places.
    """
    own = common.by_rank[common.ranks[0]].interruptions_alone if len(common.ranks) == 1 else None
    if own is None or own.places < _PLACES_ALONE:
        return []
    ns, count = common.row(common.ranks[0], own.ns), common.row(common.ranks[0], own.count)
    if ns.mean() < 2 * _SHARE * common.step_ns or count.mean() < _COUNT_ALONE or (count > 0).mean() < _STEPS_ALONE:
        return []
    figure = HostFigure(
        kind="interruptions", ns=float(ns.mean()), count=float(count.mean()), share=1 - own.inside_operators
    )
    return [
        HostCause(
            code="host_starved",
            rank=None,
            steps=common.steps,
            ns=tuple(ns.tolist()),
            own_ns=((common.ranks[0], round(float(ns.mean()))),),
            evidence=(figure,),
        )
    ]


def _interrupted(common: CommonSteps, more: Ints, count: Ints, places: int) -> bool:
    return (
        len(common.ranks) > 1
        and bool(more.mean() >= _SHARE * common.step_ns)
        and bool(((more > 0) & (count > 0)).mean() >= _STEPS)
        and bool(count.sum() >= _LEAST_COUNT)
        and places >= _PLACES
    )


def _cause(
    common: CommonSteps,
    rank: int | None,
    rows: list[int],
    ns: Ints,
    interruptions: tuple[Ints, Ints],
    others_ns: float | None = None,
    beyond: Ints | None = None,
) -> HostCause:
    """Return the cause; `interruptions`: what they take and how many there are, by rank and step."""
    found = [one for at in rows if (one := common.by_rank[common.ranks[at]].interruptions) is not None]
    between = float(np.mean([1 - one.inside_operators for one in found]))
    lost, count = interruptions
    figure = HostFigure(
        kind="interruptions",
        ns=float(lost[rows].mean()),
        count=float(count[rows].mean()),
        others_ns=others_ns,
        share=between,
    )
    return HostCause(
        code="host_starved",
        rank=rank,
        steps=common.steps,
        ns=tuple(ns.tolist()),
        beyond_ns=None if beyond is None else tuple(beyond.tolist()),
        evidence=(figure,),
    )


class _Operators:
    """What the operators that all ranks run typically take on each, ns."""

    def __init__(self, common: CommonSteps) -> None:
        by_rank = [_typical(one) for one in common.by_rank.values()]
        everywhere = set.intersection(*map(set, by_rank)) if by_rank else set()
        self._sorted = {name: sorted(times[name] for times in by_rank) for name in everywhere}

    def of_others(self, name: str, own_ns: float) -> float | None:
        """Return the median of the other ranks, where one's own is given; None where one of them does not run it."""
        if name not in self._sorted:
            return None
        times = self._sorted[name]
        own, others = bisect_left(times, own_ns), len(times) - 1
        low, high = (times[at + (at >= own)] for at in ((others - 1) // 2, others // 2))
        return (low + high) / 2


def _slower(common: CommonSteps, rank: int, operators: _Operators) -> HostCause | None:
    """Return the cause where a rank's operators all take longer than the other ranks' median."""
    mine = {one.name: one for one in common.by_rank[rank].operators}
    rows = []
    for name, one in mine.items():
        others_ns = operators.of_others(name, one.typical_ns)
        if others_ns is not None:
            usual = max(others_ns, 1.0)
            rows.append((one.typical_ns / usual, usual * one.runs, name, usual))
    if not rows:
        return None
    rows.sort()
    ratio, weight = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    middle = float(ratio[np.searchsorted(np.cumsum(weight), weight.sum() / 2)])
    least = _SLOWER_ON_CPU if common.by_rank[rank].on_cpu else _SLOWER
    alike = weight[ratio >= 1 + (middle - 1) / 2].sum() / weight.sum()
    if middle < least or alike < _ALIKE:
        return None
    own = common.by_rank[rank]
    busy = common.row(rank, own.busy_ns) + common.row(rank, own.gap_ns)
    steps = len(common.by_rank[rank].steps)
    longest = sorted(rows, key=lambda row: -row[1])[:3]
    figures = [
        HostFigure(
            kind="operator",
            name=name,
            ns=mine[name].ns / steps,
            count=mine[name].runs / steps,
            others_ns=usual * mine[name].runs / steps,
        )
        for _, _, name, usual in longest
    ]
    return HostCause(
        code="host_starved",
        rank=rank,
        steps=common.steps,
        ns=tuple(np.rint(busy * (1 - 1 / middle)).astype(np.int64).tolist()),
        beyond_ns=tuple(against_others(common.table(_busy))[common.ranks.index(rank)].tolist()),
        evidence=tuple(figures),
        confidence=0.7,
    )


def _busy(evidence: HostEvidence) -> tuple[int, ...]:
    return tuple(busy + gap for busy, gap in zip(evidence.busy_ns, evidence.gap_ns, strict=True))


def _typical(evidence: HostEvidence) -> dict[str, float]:
    return {one.name: one.typical_ns for one in evidence.operators}
