"""How ProfilerSteps and iterations go together: whoever accumulates gradients may call the profiler's `step()` in each
part of an iteration, and whoever calls it seldom has several iterations in one.

torch annotates each `Optimizer.step` by itself.
"""

from itertools import pairwise

import numpy as np

from scalescope.scaling.rank.step_sources.optimizer import TOGETHER, optimizer_spans
from scalescope.scaling.rank.step_sources.steps import Steps
from scalescope.scaling.trace.trace import Trace

#: Of fewer ProfilerSteps a single one with an update tells nothing.
_LEAST = 3


def updates_per_step(trace: Trace, steps: Steps) -> tuple[int, ...]:
    """Return how often the optimizer stepped in each ProfilerStep; empty without those, or without any update.

    The steps are on absolute time.
    """
    if steps.source != "profiler" or not len(steps) or trace.cut_off:
        return ()
    start, end = optimizer_spans(trace)
    at = steps.of(end + trace.header.base_ns)
    # of optimizers that step together, as a generator's and a discriminator's, the last one
    together = np.zeros(at.size, bool)
    length = (steps.end - steps.start)[at[:-1]] if at.size else at
    together[:-1] = (at[1:] == at[:-1]) & (start[1:] - end[:-1] <= TOGETHER * length)
    counts = np.bincount(at[(at >= 0) & ~together], minlength=len(steps)).tolist()
    return tuple(counts) if any(counts) else ()


def said_of_updates(counts: tuple[int, ...]) -> str | None:
    """Return what a user has to know of ProfilerSteps that are no iterations; None where each is one."""
    steps, updates = len(counts), sum(counts)
    if not counts or min(counts) == max(counts) == 1:
        return None
    if max(counts) == 1:
        with_update = [index for index, count in enumerate(counts) if count]
        distances = {after - before for before, after in pairwise(with_update)}
        if len(distances) > 1 or (not distances and steps < _LEAST):
            return None  # an update that is left out now and then, as a scaler of gradients does
        every = distances.pop() if distances else None
        if every == 1:
            return None
        make = f"{every} ProfilerSteps make an iteration" if every is not None else "several make an iteration"
        return (
            f"of {steps} ProfilerSteps {updates} {'holds' if updates == 1 else 'hold'} a step of the optimizer: where "
            f"gradients are accumulated {make}, and what is said of a step is the mean of ProfilerSteps of both kinds; "
            "call profiler.step() once an iteration"
        )
    if min(counts) == max(counts):
        return (
            f"each ProfilerStep holds {counts[0]} steps of the optimizer: what is said of a step is of a ProfilerStep; "
            f"where these are {counts[0]} iterations, an iteration takes 1/{counts[0]} of it"
        )
    return None
