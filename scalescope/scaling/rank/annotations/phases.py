"""What the loop's thread says it does: the annotations on it, such as a forward pass or the optimizer's step."""

from collections.abc import Sequence

import numpy as np

from scalescope.scaling.rank.step_sources.steps import Steps
from scalescope.scaling.trace.trace import Trace

#: Annotations of the profiler and of collectives, which stand elsewhere.
_OTHERS = ("ProfilerStep#", "nccl:", "gloo:", "rccl:", "mpi:", "ucc:", "xccl:")
#: An annotation that takes a smaller share of the mean step is too short to be seen.
_SHORTEST = 0.002
#: Of more, so many a step are kept, the longest.
_MOST = 48


def find_phases(trace: Trace, steps: Steps, edges: Sequence[int]) -> list[tuple[int, int, str]]:
    """Return (start, end, name) of the annotations between the first edge and the last, absolute ns, ascending.

    `edges` bound the device's steps, on which the host runs ahead: a phase of the host stands where it ran.
    """
    spans, base = trace.annotations, trace.header.base_ns
    if not len(spans) or len(edges) < 2:
        return []
    named = np.array([not name.startswith(_OTHERS) for name in trace.names], bool)
    start, end = spans.start + base, spans.end + base
    shortest = _SHORTEST * (edges[-1] - edges[0]) / (len(edges) - 1)
    chosen = named[spans.name] & (end > edges[0]) & (start < edges[-1]) & (end - start >= shortest)
    if steps.thread is not None:
        chosen &= spans.thread == steps.thread
    rows = np.flatnonzero(chosen)
    rows = rows[np.argsort(start[rows] - end[rows], kind="stable")][: _MOST * (len(edges) - 1)]
    return sorted(
        (begun, over, trace.names[name])
        for begun, over, name in zip(start[rows].tolist(), end[rows].tolist(), spans.name[rows].tolist(), strict=True)
    )
