"""How long operators take on one rank's host, to compare hosts that run the same program.

An operator's typical time is the geometric mean over its runs: a few that wait for something, or are interrupted, move
it little. A host that another process slows down takes longer for all of them, in the steps in which it does so; one
that stands still, or has more to do, takes as long for each as ever.
"""

import msgspec
import numpy as np

from scalescope.scaling.evidence.host_timeline import HostTimeline

#: So many operators are kept a rank, those that take most time.
MOST_OPERATORS = 47
#: An operator tells how fast a step's host is where it runs so often in every step; of fewer such operators none do.
_RUNS_A_STEP, _LEAST_OPERATORS = 2, 8


class OperatorPace(msgspec.Struct, frozen=True):
    """One operator on one rank's host."""

    name: str
    runs: int  # in all steps
    typical_ns: float  # of one
    ns: int  # of all, what it calls included


def operator_paces(host: HostTimeline) -> tuple[OperatorPace, ...]:
    """Return the operators of the steps, those that take most time first."""
    operators = host.operators
    inside = (operators.start >= host.edges[0]) & (operators.start < host.edges[-1])
    name, length = operators.name[inside], (operators.end - operators.start)[inside]
    if not name.size:
        return ()
    runs = np.bincount(name)
    total = np.bincount(name, weights=length)
    logarithm = np.bincount(name, weights=np.log(np.maximum(length, 1)))
    order = np.argsort(-total, kind="stable")[:MOST_OPERATORS]
    return tuple(
        OperatorPace(host.names[one], int(runs[one]), float(np.exp(logarithm[one] / runs[one])), int(total[one]))
        for one in order.tolist()
        if runs[one]
    )


def step_paces(host: HostTimeline) -> tuple[int, ...]:
    """Return of each step how long its operators take, in per cent of the median step; () where too few tell.

    The median over the operators that every step runs, of each one's typical time in the step over that in the median
    one: launching more of them does not move it, nor does what is done between them.
    """
    operators, steps = host.operators, len(host)
    at = host.step_of(operators.start)
    inside = at >= 0
    if steps < 2 or not inside.any():
        return ()
    cell = operators.name[inside] * steps + at[inside]
    length = np.log(np.maximum((operators.end - operators.start)[inside], 1))
    size = (int(operators.name[inside].max()) + 1) * steps
    runs = np.bincount(cell, minlength=size).reshape(-1, steps)
    told = (runs >= _RUNS_A_STEP).all(axis=1)
    if told.sum() < _LEAST_OPERATORS:
        return ()
    typical = np.bincount(cell, weights=length, minlength=size).reshape(-1, steps)[told] / runs[told]
    paces = np.exp(np.median(typical - np.median(typical, axis=1, keepdims=True), axis=0))
    return tuple(round(100 * float(one)) for one in paces)


def step_counts(host: HostTimeline) -> tuple[int, ...]:
    """Return how many operators begin in each step, those that others call included."""
    at = host.step_of(host.operators.start)
    return tuple(np.bincount(at[at >= 0], minlength=len(host)).tolist())
