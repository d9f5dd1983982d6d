"""Which training step something belongs to: the ProfilerStep in which the host launched it.

The `gpu_user_annotation` of a ProfilerStep is no step: it covers only what the annotating thread launched, and the
backward pass is launched by another thread. So a device activity is followed back to its launch, and the launch's time
says the step, whatever thread it was on.

A job that did not call the profiler's `step()` has steps all the same, mostly: its optimizer's, a server's iterations,
an annotation that recurs, graphs that are replayed, kernels whose sequence repeats, tokens that are chosen. The
first of these that there is tells the steps; where there is none there are no steps, and no step's time.
"""

from scalescope.scaling.rank.step_sources.annotations import by_annotations
from scalescope.scaling.rank.step_sources.graphs import by_graphs
from scalescope.scaling.rank.step_sources.iterations import by_iterations
from scalescope.scaling.rank.step_sources.optimizer import by_optimizer
from scalescope.scaling.rank.step_sources.period import by_period
from scalescope.scaling.rank.step_sources.profiler import by_profiler
from scalescope.scaling.rank.step_sources.steps import NO_STEPS, Steps
from scalescope.scaling.rank.step_sources.tokens import by_tokens
from scalescope.scaling.rank.step_sources.work import work_of
from scalescope.scaling.rank.step_sources.xla import by_module_runs, by_step_annotations
from scalescope.scaling.trace.trace import Trace

__all__ = ["Steps", "find_steps"]


def find_steps(trace: Trace, only: tuple[int, int] | None = None) -> Steps:
    """Return the trace's steps in ns of the file's clock; none where nothing tells any.

    `only`: those from one number to another.
    """
    found = _find(trace)
    return found if only is None else found.within(*only)


def _find(trace: Trace) -> Steps:
    told = by_profiler(trace) or by_step_annotations(trace) or by_iterations(trace) or by_optimizer(trace)
    if told is not None:
        return told
    work = work_of(trace)
    for find in (by_module_runs, by_annotations, by_graphs, by_period, by_tokens):
        if (found := find(trace, work)) is not None:
            return found
    return NO_STEPS
