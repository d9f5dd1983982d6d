"""Steps by CUDA graphs: a job that replays the same graphs again and again does so step by step."""

import numpy as np

from scalescope.scaling.rank.step_sources.steps import Steps, numbered
from scalescope.scaling.rank.step_sources.work import Work, makes_steps
from scalescope.scaling.trace.trace import Trace

#: Replays of one sequence of graphs; fewer are no recurrence.
_LEAST = 3


def by_graphs(trace: Trace, work: Work) -> Steps | None:
    """Return the steps that replays of graphs make, each from a launch on; None where they make none."""
    calls = trace.runtime
    launching = np.array(["GraphLaunch" in name for name in trace.names], bool)
    rows = np.flatnonzero(launching[calls.name]) if len(calls) else np.empty(0, np.int64)
    rows = rows[np.argsort(calls.start[rows], kind="stable")]
    if rows.size < _LEAST:
        return None
    graphs = _graphs_of(work, calls.correlation[rows].tolist())
    period = _period(graphs)
    if period is None:
        return None
    first = rows[::period]
    whole = rows.size // period
    start = calls.start[first[:whole]]
    end = np.append(start[1:], calls.end[rows[whole * period - 1]])
    if start.size < 2 or not makes_steps(work, start, int(end[-1])):
        return None
    return numbered(start, end, int(calls.thread[rows[0]]), "graph")


def _graphs_of(work: Work, correlations: list[int]) -> list[int]:
    """Return of each launch a number that stands for what the graph holds: its kernels' names in order."""
    order = np.argsort(work.correlation, kind="stable")
    sorted_ = work.correlation[order]
    known: dict[bytes, int] = {}
    found = []
    for number in correlations:
        left, right = np.searchsorted(sorted_, number, side="left"), np.searchsorted(sorted_, number, side="right")
        held = work.name[np.sort(order[left:right])].tobytes()
        found.append(known.setdefault(held, len(known)))
    return found


def _period(graphs: list[int]) -> int | None:
    """Return after how many graphs their sequence repeats; None where it does not."""
    for period in range(1, len(graphs) // _LEAST + 1):
        if all(one == other for one, other in zip(graphs, graphs[period:], strict=False)):
            return period
    return None
