"""Steps of a job of JAX: by its StepTraceAnnotations, else by the runs of the module that computes most.

Both say when a step was dispatched, and so what was launched in it. How long it took is told by the device alone.
"""

import re

import numpy as np

from scalescope.scaling.answer import StepSource
from scalescope.scaling.rank.step_sources.steps import Steps, numbered
from scalescope.scaling.rank.step_sources.work import Work
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.trace import Trace
from scalescope.scaling.trace.xla.adapter import MODULE_RUN, STEP_MARK

_NUMBERED = re.compile(rf"{STEP_MARK}(\d{{1,18}})$")
#: Fewer runs are no recurrence.
_LEAST = 2


def by_step_annotations(trace: Trace) -> Steps | None:
    """Return the steps that StepTraceAnnotations number; None without any, or where runs of modules lie across them."""
    spans = trace.annotations
    numbers = {index: int(match[1]) for index, name in enumerate(trace.names) if (match := _NUMBERED.match(name))}
    rows = np.flatnonzero(np.isin(spans.name, list(numbers)))
    if not rows.size:
        return None
    rows = rows[spans.thread[rows] == spans.thread[rows[0]]]
    rows = rows[np.argsort(spans.start[rows], kind="stable")]
    start, end = spans.start[rows], spans.end[rows]
    if bool((start[1:] < end[:-1]).any()):
        return None
    runs = _runs(trace)
    began = np.searchsorted(start, spans.start[runs], side="right")
    ended = np.searchsorted(start, spans.end[runs], side="right")
    if bool((began != ended).any()):
        return None  # dispatched on a thread of its own, which lags behind: what it launches is of the step before
    # the last one's launches may go on behind its own end
    end = end.copy()
    end[-1] = max([int(end[-1]), *spans.end[runs].tolist()])
    steps = np.array([numbers[int(name)] for name in spans.name[rows]], np.int64)
    source: StepSource = "step_annotation"
    return Steps(steps, start, end, int(spans.thread[rows[0]]), source)


def by_module_runs(trace: Trace, work: Work) -> Steps | None:
    """Return the steps that the runs of one module begin: of that one which launches most of the compute."""
    spans, rows = trace.annotations, _runs(trace)
    if not rows.size or not work.launch.size:
        return None
    rows = rows[np.argsort(spans.start[rows], kind="stable")]
    start, end = spans.start[rows], spans.end[rows]
    at = np.searchsorted(start, work.launch, side="right") - 1
    inside = (at >= 0) & (work.launch <= end[np.maximum(at, 0)])
    computed: Ints = np.zeros(len(trace.names), np.int64)
    np.add.at(computed, spans.name[rows][at[inside]], work.ns[inside])
    chosen = spans.name[rows] == int(computed.argmax())
    if not computed.any() or int(chosen.sum()) < _LEAST:
        return None
    begin = start[chosen]
    until = np.append(begin[1:], end[-1])
    return numbered(begin, until, int(spans.thread[rows[0]]), "module")


def _runs(trace: Trace) -> Ints:
    named = [index for index, name in enumerate(trace.names) if name.startswith(MODULE_RUN)]
    return np.flatnonzero(np.isin(trace.annotations.name, named))
