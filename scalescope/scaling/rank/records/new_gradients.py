"""Where a backward pass makes gradients that were not there, and where it adds to those of a pass before.

A loop that accumulates adds in all passes but the first since gradients were dropped. One that trains several models by
one optimizer makes each model's anew. Where gradients are kept and set to zero, all passes add, and nothing is told.
"""

import numpy as np

from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import Trace

_ACCUMULATES, _ADDS = "torch::autograd::AccumulateGrad", ("aten::add_", "aten::add")


def new_gradients(trace: Trace) -> Ints:
    """Return when the nodes begin that accumulate a gradient, and add to none, absolute ns, ascending."""
    operators = trace.operators
    nodes = np.flatnonzero(np.array([name == _ACCUMULATES for name in trace.names], bool)[operators.name])
    adds = np.flatnonzero(np.array([name in _ADDS for name in trace.names], bool)[operators.name])
    found = []
    for thread in np.unique(operators.thread[nodes]).tolist():
        own = nodes[operators.thread[nodes] == thread]
        added = np.sort(operators.start[adds[operators.thread[adds] == thread]])
        first, last = (np.searchsorted(added, times[own]) for times in (operators.start, operators.end))
        found.append(operators.start[own[first == last]])
    begun: Ints = np.sort(np.concatenate(found)) if found else operators.start[:0]
    return begun + trace.header.base_ns
