"""What a host call stands in: the outermost operator on its thread, and the innermost annotation of the user's."""

import numpy as np

from scalescope.scaling.evidence.host_timeline import HostTimeline, Spans
from scalescope.scaling.trace.families import ENGINE_FRAMES
from scalescope.scaling.trace.intervals import Ints


class Enclosing:
    """Answers, for instants on the threads that drive training, with indices into the trace's names; -1 for none."""

    def __init__(self, host: HostTimeline) -> None:
        frames = np.array([name.startswith(ENGINE_FRAMES) for name in host.names], bool)
        self._operators = {}
        for thread in np.unique(host.operators.thread).tolist():
            own = np.flatnonzero((host.operators.thread == thread) & ~frames[host.operators.name])
            self._operators[thread] = host.operators.of(own[_outermost(host.operators, own)])
        self._annotations = host.annotations

    def operators(self, instants: Ints, threads: Ints) -> Ints:
        """Return the name of the outermost operator that is open on each instant's thread."""
        found = np.full(instants.size, -1, np.int64)
        for thread, spans in self._operators.items():
            own = np.flatnonzero(threads == thread)
            if own.size and len(spans):
                at = np.searchsorted(spans.start, instants[own], side="right") - 1
                inside = (at >= 0) & (spans.end[at] >= instants[own])
                found[own[inside]] = spans.name[at[inside]]
        return found

    def annotations(self, instants: Ints) -> Ints:
        """Return the name of the innermost annotation of the loop's thread that is open at each instant."""
        spans = self._annotations
        found = np.full(instants.size, -1, np.int64)
        if not len(spans):
            return found
        last = np.searchsorted(spans.start, instants, side="right") - 1
        reach = np.maximum.accumulate(spans.end)
        for index, (row, instant) in enumerate(zip(last.tolist(), instants.tolist(), strict=True)):
            while row >= 0 and reach[row] >= instant:
                if spans.end[row] >= instant:
                    found[index] = spans.name[row]
                    break
                row -= 1
        return found


def _outermost(spans: Spans, rows: Ints) -> Ints:
    """Return which of the rows, those of a thread (ascending by start), lie in no other one of them."""
    if not rows.size:
        return rows
    reach = np.maximum.accumulate(spans.end[rows])
    return np.flatnonzero(np.concatenate(([True], spans.start[rows[1:]] >= reach[:-1])))
