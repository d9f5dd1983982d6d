"""Who compiles in steps that should be steady."""

import numpy as np

from scalescope.scaling.evidence.causes.common_steps import CommonSteps
from scalescope.scaling.evidence.host_cause import HostCause, HostFigure
from scalescope.scaling.trace.intervals import Ints

#: The share of a step that compiling takes at least, in the mean: once in a window is worth telling.
_SHARE = 0.01


def compiling_causes(common: CommonSteps) -> list[HostCause]:
    """Return one cause for all ranks where all compile, else one for each rank that does."""
    ns = common.table(lambda one: one.compiling.ns if one.compiling else None)
    compile_at_all = [at for at in range(len(common.ranks)) if ns[at].mean() >= _SHARE * common.step_ns]
    if len(compile_at_all) == len(common.ranks) and len(common.ranks) > 1:
        return [_cause(common, None, common.ranks, np.rint(ns.mean(axis=0)).astype(np.int64))]
    return [_cause(common, common.ranks[at], [common.ranks[at]], ns[at]) for at in compile_at_all]


def _cause(common: CommonSteps, rank: int | None, ranks: list[int], ns: Ints) -> HostCause:
    found = [one for at in ranks if (one := common.by_rank[at].compiling) is not None]
    regions = sorted({one.region for one in found if one.region})
    figure = HostFigure(
        kind="operator",
        name=regions[0] if regions else "",
        ns=float(np.mean([sum(one.ns) / len(one.ns) for one in found])),
        count=float(np.mean([sum(one.count) / len(one.count) for one in found])),
    )
    return HostCause(code="recompilation", rank=rank, steps=common.steps, ns=tuple(ns.tolist()), evidence=(figure,))
