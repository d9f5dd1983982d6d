"""The compute that a trace's host launches, and whether a way to cut it up makes steps of it.

Layers recur as steps do. What tells them apart is the rest: the embedding before the first layer and the loss behind
the last one are in no layer, while all that a training loop or a server computes is in its steps.
"""

import math
from dataclasses import dataclass

import numpy as np

from scalescope.scaling.rank.launches import find_launches
from scalescope.scaling.trace.families import ENGINE_FRAMES, HANDOVER_OPS, is_communication_kernel
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import KERNEL, Trace

#: The share of the compute that lies in the steps; the rest may be a step that the window cut off.
_MOST_OF_IT = 0.6
#: The share of the compute in what no step runs. More of it, and the steps are a part of something larger.
_FOREIGN = 0.002
#: Nobody records more steps; what recurs more often is a part of one.
_MOST_STEPS = 10_000
#: The share of a step's compute that is in kernels of the mean step's names.
_ALIKE = 0.7
#: So many times as much as the shortest one may the longest step compute.
_LONGEST = 4.0


@dataclass(frozen=True, slots=True)
class Work:
    """What computes, ascending by when it was launched (on a CPU: begun), ns of the file's clock."""

    launch: Ints
    name: Ints
    ns: Ints
    correlation: Ints


def work_of(trace: Trace) -> Work:
    """Return the compute kernels by their launches, or their starts where no launch is known; on a CPU operators."""
    if len(trace.activities):
        activities = trace.activities
        moving = np.array([is_communication_kernel(name) for name in trace.names], bool)
        chosen = (activities.kind == KERNEL) & ~moving[activities.name] & (activities.communication < 0)
        launch = find_launches(trace).start
        known = launch >= 0
        launch = launch if known[chosen].any() else activities.start
        rows = np.flatnonzero(chosen & (launch >= 0))
        rows = rows[np.lexsort((activities.start[rows], launch[rows]))]
        ns = (activities.end - activities.start)[rows]
        return Work(launch[rows], activities.name[rows].astype(np.int64), ns, activities.correlation[rows])
    operators = trace.operators
    none = np.array([name.startswith((*ENGINE_FRAMES, *HANDOVER_OPS)) for name in trace.names], bool)
    rows = np.flatnonzero(~none[operators.name]) if len(operators) else np.empty(0, np.int64)
    rows = rows[np.argsort(operators.start[rows], kind="stable")]
    ns = (operators.end - operators.start)[rows]
    return Work(operators.start[rows], operators.name[rows].astype(np.int64), ns, np.full(rows.size, -1, np.int64))


def makes_steps(work: Work, start: Ints, until: int) -> bool:
    """Tell whether cuts at `start` make steps of the work, the last one up to `until`: all alike, and all there is."""
    if not 2 <= start.size <= _MOST_STEPS or not work.ns.size:
        return False
    inside = _step_of(work, start, until) >= 0
    whole = int(work.ns.sum())
    if int(work.ns[inside].sum()) < _MOST_OF_IT * whole:
        return False
    own = np.unique(work.name[inside])
    if int(work.ns[~np.isin(work.name, own)].sum()) > _FOREIGN * whole:
        return False
    return are_alike(work, start, until, _LONGEST)


def are_alike(work: Work, start: Ints, until: int, longest: float = math.inf) -> bool:
    """Tell whether most of the steps that cuts at `start` make compute the same, the last one up to `until`.

    `longest`: how many times as much as the shortest one the longest may compute.
    """
    if not 2 <= start.size <= _MOST_STEPS or not work.ns.size:
        return False
    step = _step_of(work, start, until)
    inside = step >= 0
    own = np.unique(work.name[inside])
    column = np.searchsorted(own, work.name[inside])
    table = np.zeros((start.size, own.size), np.int64)
    np.add.at(table, (step[inside], column), work.ns[inside])
    total = table.sum(axis=1)
    if (total == 0).any():
        return False
    shares = table / total[:, None]
    alike = np.minimum(shares, shares.mean(axis=0)).sum(axis=1)
    return bool(np.median(alike) >= _ALIKE and total.max() <= longest * total.min())


def _step_of(work: Work, start: Ints, until: int) -> Ints:
    """Return the step in which each kernel was launched; -1 where in none."""
    step: Ints = np.searchsorted(start, work.launch, side="right") - 1
    step[work.launch > until] = -1
    return step
