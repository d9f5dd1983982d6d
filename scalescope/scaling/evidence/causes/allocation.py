"""Who takes memory from the driver, or gives it back, in steps that should be steady."""

import numpy as np

from scalescope.scaling.evidence.allocating import Allocation
from scalescope.scaling.evidence.causes.common_steps import CommonSteps
from scalescope.scaling.evidence.host_cause import HostCause, HostFigure
from scalescope.scaling.trace.intervals import Ints

#: The share of a step that the calls, or the device's idling for them, take at least, in the mean.
_SHARE = 0.005


def allocation_causes(common: CommonSteps) -> list[HostCause]:
    """Return one cause for all ranks where all make such calls, else one for each rank that does.

    `ns` is the longer of what the calls take of the host and what the device idles for them.
    """
    shape = (len(common.ranks), len(common))
    host, idle = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for at, rank in enumerate(common.ranks):
        for one in common.by_rank[rank].allocating:
            host[at] += common.row(rank, one.ns)
            idle[at] += common.row(rank, one.idle_ns)
    ns = np.where(host.mean(axis=1, keepdims=True) > idle.mean(axis=1, keepdims=True), host, idle)
    those = [at for at in range(len(common.ranks)) if ns[at].mean() >= _SHARE * common.step_ns]
    if len(those) == len(common.ranks) and len(those) > 1:
        return [_cause(common, None, common.ranks, np.rint(ns.mean(axis=0)).astype(np.int64))]
    return [_cause(common, common.ranks[at], [common.ranks[at]], ns[at]) for at in those]


def _cause(common: CommonSteps, rank: int | None, ranks: list[int], ns: Ints) -> HostCause:
    by_place: dict[tuple[str, str], list[Allocation]] = {}
    for one in (common.by_rank[at] for at in ranks):
        for calls in one.allocating:
            by_place.setdefault((calls.call, calls.operator), []).append(calls)
    figures = [
        HostFigure(
            kind="call",
            name=call,
            inside=operator,
            ns=sum(sum(one.ns) / len(one.ns) for one in rows) / len(ranks),
            count=sum(sum(one.calls) / len(one.calls) for one in rows) / len(ranks),
        )
        for (call, operator), rows in by_place.items()
    ]
    figures.sort(key=lambda figure: -figure.ns)
    return HostCause(
        code="allocation", rank=rank, steps=common.steps, ns=tuple(ns.tolist()), evidence=tuple(figures[:4])
    )
