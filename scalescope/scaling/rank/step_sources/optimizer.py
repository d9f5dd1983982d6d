"""Steps by the optimizer's annotation, which torch writes by itself: one ends where `Optimizer.step#AdamW.step` does.

What was launched before the first one has ended is a step whose begin nobody knows, and what comes after the last one
is a step without its end: both are left out.
"""

import numpy as np
import numpy.typing as npt

from scalescope.scaling.rank.step_sources.in_turn import ends_of_rounds
from scalescope.scaling.rank.step_sources.steps import Steps, numbered
from scalescope.scaling.trace.families import ENGINE_FRAMES
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import Trace

_ANNOTATION = "Optimizer.step#"
#: Optimizers that step one after the other belong to one step of the job: nearer to each other than this share of the
#: largest distance, or of the ProfilerStep that holds them.
TOGETHER = 0.2
#: … unless a forward pass lies between them, and its backward pass: of the operators there so many, and more, before
#: the first that autograd's engine runs. Optimizers that step in the backward pass have hardly one.
_FORWARD = 0.25

Bools = npt.NDArray[np.bool_]


def by_optimizer(trace: Trace) -> Steps | None:
    """Return the steps between the ends of the optimizers' own; None where there are fewer than two of those."""
    rows = _annotated(trace)
    if rows.size < 2:
        return None
    ends = optimizer_ends(trace)
    thread = int(trace.annotations.thread[rows[0]])
    return numbered(ends[:-1], ends[1:], thread, "optimizer") if ends.size > 1 else None


def optimizer_ends(trace: Trace) -> Ints:
    """Return when the optimizer's steps end, ascending; of optimizers that step together the last one's."""
    start, end = optimizer_spans(trace)
    rounds = ends_of_rounds(trace, start, end)
    return _last_of_each(start, end, _hold_both_passes(trace, end[:-1], start[1:])) if rounds is None else rounds


def optimizer_spans(trace: Trace) -> tuple[Ints, Ints]:
    """Return when each optimizer's steps begin and end, ascending."""
    rows = _annotated(trace)
    return trace.annotations.start[rows], trace.annotations.end[rows]


def _annotated(trace: Trace) -> Ints:
    """Return the rows of the optimizers' annotations on the thread that has the first of them, ascending in time."""
    spans = trace.annotations
    named = np.array([name.startswith(_ANNOTATION) for name in trace.names], bool)
    rows = np.flatnonzero(named[spans.name]) if len(spans) else np.empty(0, np.int64)
    rows = rows[np.argsort(spans.start[rows], kind="stable")]
    return rows[spans.thread[rows] == spans.thread[rows[0]]] if rows.size else rows


def _hold_both_passes(trace: Trace, begin: Ints, end: Ints) -> Bools:
    """Tell of stretches between optimizers' steps which hold a forward pass and its backward pass: steps of the job.

    One step that validates is as long as many others, which then are near to each other beside it.
    """
    order = np.argsort(trace.operators.start, kind="stable")
    starts, names = trace.operators.start[order], trace.operators.name[order]
    engine = np.array([name.startswith(ENGINE_FRAMES) for name in trace.names], bool)
    backward = np.flatnonzero(engine[names]) if names.size else np.empty(0, np.int64)
    first, last = np.searchsorted(starts, begin), np.searchsorted(starts, end)
    at = np.searchsorted(backward, first)
    found = at < backward.size
    where = np.append(backward, 0)[np.minimum(at, backward.size)]
    holds: Bools = found & (where < last) & (where - first >= np.maximum(1.0, _FORWARD * (last - first)))
    return holds


def _last_of_each(start: Ints, end: Ints, alone: Bools) -> Ints:
    """Return the ends, of optimizers that step together the last one's; `alone`: after which of them the next does."""
    if start.size < 2:
        return end
    distance = start[1:] - start[:-1]
    gaps = start[1:] - end[:-1]
    last = np.append((gaps > TOGETHER * float(distance.max())) | alone, True)
    ends: Ints = end[last]
    return ends
