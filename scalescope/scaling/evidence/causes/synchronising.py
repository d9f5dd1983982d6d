"""Which calls make hosts wait for their devices in the middle of a step, and idle the devices after."""

from functools import partial

import numpy as np

from scalescope.scaling.evidence.causes.common_steps import CommonSteps, beyond_others
from scalescope.scaling.evidence.host_cause import HostCause, HostFigure, line_of_all
from scalescope.scaling.evidence.host_evidence import HostEvidence
from scalescope.scaling.evidence.synchronising import Synchronisation
from scalescope.scaling.trace.intervals import Ints

#: The share of a step that the device must idle for these calls, in the median of the steps.
_SHARE = 0.002

Key = tuple[str, str, str, bool]  # call, operator, annotation, whether a copy out of the host's memory makes it wait


def synchronising_causes(common: CommonSteps) -> list[HostCause]:
    """Return a cause for what all ranks have in common, and one for each rank with more; `ns` is its device's idling.

    All the synchronising calls of a rank are one cause, and the places are its evidence.
    """
    shape = (len(common.ranks), len(common))
    idle, at_most = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for at, rank in enumerate(common.ranks):
        for one in common.by_rank[rank].synchronising:
            idle[at] += common.row(rank, one.idle_ns)
            at_most[at] += common.row(rank, one.idle_until_ahead_ns)
    least = common.step_ns * _SHARE
    found = []
    counts = common.table(_counts)
    more = beyond_others(counts)
    theirs = _idle_of_their_own(common)
    for at, rank in enumerate(common.ranks):
        # idle time after calls that all ranks make differs as hosts do: only one that calls more often is alone
        if np.median(more[at]) >= 1 and np.median(theirs[at]) >= least:
            found.append(_cause(common, rank, idle[at], at_most[at], [rank]))
    alone = {cause.rank for cause in found}
    together = [at for at, rank in enumerate(common.ranks) if rank not in alone]
    if together and (counts[together].min(axis=0) >= 1).mean() > 0.5:
        base, most = (np.rint(np.median(table[together], axis=0)).astype(np.int64) for table in (idle, at_most))
        if np.median(base) >= least:
            found.append(_cause(common, None, base, most, [common.ranks[at] for at in together]))
    return found


def _idle_of_their_own(common: CommonSteps) -> Ints:
    """Return how long each rank's device idles after calls that it makes beyond the others' at their places, a step."""
    places = {_place(one) for evidence in common.by_rank.values() for one in evidence.synchronising}
    found = np.zeros((len(common.ranks), len(common)), np.int64)
    for place in places:
        counts = common.table(partial(_of_place, place=place, kind="calls"))
        idle = common.table(partial(_of_place, place=place, kind="idle_ns"))
        share = beyond_others(counts) / np.maximum(counts, 1)
        found += np.rint(idle * np.minimum(share, 1)).astype(np.int64)
    return found


def _of_place(evidence: HostEvidence, place: Key, kind: str) -> tuple[int, ...]:
    rows = [getattr(one, kind) for one in evidence.synchronising if _place(one) == place]
    return tuple(np.sum(rows, axis=0).tolist()) if rows else (0,) * len(evidence.steps)


def _place(one: Synchronisation) -> Key:
    return one.call, one.operator, one.annotation, one.from_host


def _counts(evidence: HostEvidence) -> tuple[int, ...]:
    rows = [one.calls for one in evidence.synchronising]
    return tuple(np.sum(rows, axis=0).tolist()) if rows else (0,) * len(evidence.steps)


def _cause(common: CommonSteps, rank: int | None, ns: Ints, at_most: Ints, ranks: list[int]) -> HostCause:
    by_place: dict[Key, list[Synchronisation]] = {}
    for one in (common.by_rank[at] for at in ranks):
        for calls in one.synchronising:
            by_place.setdefault(_place(calls), []).append(calls)
    figures = [
        HostFigure(
            kind="call",
            name=call,
            inside=operator or annotation,
            ns=_mean([one.idle_ns for one in rows], len(ranks)),
            count=_mean([one.calls for one in rows], len(ranks)),
            from_host=from_host,
            line=line_of_all((one.line, sum(one.calls)) for one in rows),
        )
        for (call, operator, annotation, from_host), rows in by_place.items()
    ]
    figures.sort(key=lambda figure: -figure.ns)
    return HostCause(
        code="synchronising",
        rank=rank,
        steps=common.steps,
        ns=tuple(ns.tolist()),
        at_most_ns=tuple(at_most.tolist()),
        evidence=tuple(figures[:5]),
    )


def _mean(rows: list[tuple[int, ...]], ranks: int) -> float:
    return sum(sum(row) / len(row) for row in rows) / ranks
