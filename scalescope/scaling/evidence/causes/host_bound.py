"""Whether the devices wait for their hosts to launch although nothing in particular holds the hosts up.

A device that idles because nothing is launched yet says that its host is late; the devices of the other ranks then wait
for that rank in their collectives. So a step loses what its latest host is late by, less what is known to hold up that
host: what is left is launching, and nobody is to blame. What the hosts are busy with is told by the operators that take
most of their time, the launches a step, and how long a kernel takes beside the interval between two launches: a device
that is faster than its host idles in between.
"""

from collections.abc import Sequence

import numpy as np

from scalescope.scaling.evidence.causes.common_steps import CommonSteps
from scalescope.scaling.evidence.host_cause import HostCause, HostFigure
from scalescope.scaling.finding.figures import BESIDE

#: The share of a step by which the latest host must be late, in the median of the steps.
_SHARE = 0.05
#: So many of the training's launches other threads must make to be worth a word: each call of the driver locks it.
_BESIDE = 0.2
#: Operators that only hold others.
_FRAMES = ("autograd::engine::", "Torch-Compiled Region", "CompiledFunction")


def host_bound_causes(common: CommonSteps, known: Sequence[HostCause]) -> list[HostCause]:
    """Return the cause where devices wait for launches; `ns`: how long the latest one does beyond `known` causes."""
    if any(one.on_cpu for one in common.by_rank.values()):
        return []
    late = common.table(lambda one: one.late_ns)
    for cause in known:
        rows = [at for at, rank in enumerate(common.ranks) if cause.rank in (None, rank)]
        late[rows] -= np.array(cause.ns, np.int64)
    base = np.maximum(late.max(axis=0), 0)
    if np.median(base) < _SHARE * common.step_ns:
        return []
    steps = len(common) * len(common.ranks)
    launches = common.table(lambda one: one.launches).sum()
    busy = common.table(lambda one: one.busy_ns).sum()
    kernels = common.table(lambda one: one.kernels).sum()
    kernel_ns = common.table(lambda one: one.kernel_ns).sum()
    beside = common.table(lambda one: one.launches_beside or None).sum()
    figures = [
        HostFigure(kind="call", name="launches", ns=float(busy / max(launches, 1)), count=float(launches / steps)),
        HostFigure(kind="kernels", ns=float(kernel_ns / max(kernels, 1)), count=float(kernels / steps)),
        *_operators(common),
    ]
    if beside >= _BESIDE * launches:
        figures.append(HostFigure(kind="call", name=BESIDE, ns=0.0, count=float(beside / steps)))
    return [
        HostCause(code="host_bound", rank=None, steps=common.steps, ns=tuple(base.tolist()), evidence=tuple(figures))
    ]


def _operators(common: CommonSteps) -> list[HostFigure]:
    """Return the operators that take most of the hosts' time, mean a rank and step."""
    total: dict[str, tuple[float, float]] = {}
    for one in common.by_rank.values():
        for operator in one.operators:
            ns, runs = total.get(operator.name, (0.0, 0.0))
            share = len(one.steps) * len(common.ranks)
            total[operator.name] = ns + operator.ns / share, runs + operator.runs / share
    names = [name for name in total if not name.startswith(_FRAMES)]
    names.sort(key=lambda name: -total[name][0])
    return [HostFigure(kind="operator", name=name, ns=total[name][0], count=total[name][1]) for name in names[:5]]
