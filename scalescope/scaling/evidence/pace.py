"""How long operators take on one rank's host, to compare hosts that run the same program.

An operator's typical time is the geometric mean over its runs: a few that wait for something, or are interrupted, move
it little.
"""

import msgspec
import numpy as np

from scalescope.scaling.evidence.host_timeline import HostTimeline

#: So many operators are kept a rank, those that take most time.
MOST_OPERATORS = 48


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
