"""Who loads data longer than the other ranks do, and what all ranks take for it."""

import numpy as np
from msgspec.structs import replace

from scalescope.scaling.evidence.causes.common_steps import CommonSteps, against_others
from scalescope.scaling.evidence.host_cause import HostCause, HostFigure, line_of_all
from scalescope.scaling.trace.intervals import Ints

#: The share of a step from which on loading is told, in the median of the steps: a rank's own excess, and that of all.
_SHARE = 0.005
_SHARE_OF_ALL = 0.01
#: One rank alone must take so many times what the others do.
_TIMES = 1.5


def loading_causes(common: CommonSteps) -> list[HostCause]:
    """Return the causes: a rank each that is slower than the others, and one for what all ranks take at least."""
    loading = common.table(lambda one: one.loading_ns)
    beyond = against_others(loading)
    excess = np.maximum(beyond, 0)
    least = common.step_ns * _SHARE
    found = []
    for at, rank in enumerate(common.ranks):
        others = np.delete(loading, at, axis=0)
        typical = float(np.median(excess[at]))
        if typical >= least and loading[at].mean() >= _TIMES * (np.median(others, axis=0).mean() if len(others) else 0):
            others_ns = float(others.mean()) if others.size else None
            found.append(_cause(common, rank, excess[at], others_ns, beyond[at]))
    base = loading.min(axis=0)
    if np.median(base) >= _SHARE_OF_ALL * common.step_ns:
        by_rank_ns = tuple(tuple(own) for own in loading.tolist())
        found.append(replace(_cause(common, None, base, None), by_rank_ns=by_rank_ns))
    return found


def _cause(
    common: CommonSteps, rank: int | None, ns: Ints, others_ns: float | None, beyond: Ints | None = None
) -> HostCause:
    # what all take at least is what the one takes that takes least
    least = common.ranks[int(common.table(lambda one: one.loading_ns).mean(axis=1).argmin())]
    one = common.by_rank[least if rank is None else rank]
    by_name: dict[str, list[tuple[float, float]]] = {}
    for row in one.loading:
        by_name.setdefault(row.annotation, []).append((sum(row.ns) / len(one.steps), row.count / len(one.steps)))
    figures = [
        HostFigure(
            kind="annotation",
            name=name,
            ns=sum(time for time, _ in rows),
            count=sum(count for _, count in rows),
            others_ns=others_ns,
            line=line_of_all((row.line, sum(row.ns)) for row in one.loading if row.annotation == name),
        )
        for name, rows in by_name.items()
    ]
    figures.sort(key=lambda figure: -figure.ns)
    return HostCause(
        code="data_loading",
        rank=rank,
        steps=common.steps,
        ns=tuple(ns.tolist()),
        beyond_ns=None if beyond is None else tuple(beyond.tolist()),
        evidence=tuple(figures[:3]),
    )
