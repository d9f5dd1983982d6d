"""When the host loads data: inside the annotations that say so, on the thread that runs the training loop."""

import re

import numpy as np

from scalescope.scaling.rank.steps import Steps
from scalescope.scaling.trace.intervals import EMPTY, Intervals, union
from scalescope.scaling.trace.trace import Trace

#: The annotation that our own jobs put around fetching a batch.
ANNOTATION = "scalescope:data"
#: What torch's DataLoader puts around its own `__next__`.
_DATALOADER = re.compile(r"enumerate\(DataLoader\)#.*\.__next__$")


def data_loading(trace: Trace, steps: Steps) -> Intervals:
    """Return when the training loop's thread loads data: a disjoint set in absolute ns.

    Loading by other threads or worker processes costs the loop nothing unless the loop waits for it, and then that wait
    lies in one of these annotations.
    """
    told = [index for index, name in enumerate(trace.names) if name == ANNOTATION or _DATALOADER.match(name)]
    if not told:
        return EMPTY
    found = []
    for spans in (trace.annotations, trace.operators):
        chosen = np.isin(spans.name, told)
        if steps.thread is not None:
            chosen &= spans.thread == steps.thread
        base = trace.header.base_ns
        found.append(Intervals(spans.start[chosen] + base, spans.end[chosen] + base))
    return union(*found)
