"""How large the inputs are that a rank multiplies, as recorded shapes tell: by step and operator, and by activity.

Of a longer step, and of a rank whose compute takes longer, they tell more work from slower work: the same operators on
larger inputs are no slower core.
"""

import statistics
from collections.abc import Sequence

import msgspec
import numpy as np

from scalescope.scaling.rank.step_sources.steps import Steps
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.trace.trace import Trace

#: Calls another of those that multiply, which would count twice.
CALLS_OTHERS = "aten::linear"
#: Inputs that differ by less than this share are of one size.
_ALIKE = 0.005


class StepInputs(msgspec.Struct, frozen=True):
    """How much a rank multiplies in one step, beside its median step."""

    times_load: float  # all elements of inputs that grow with the batch
    times: dict[str, float]  # the same by operator, of those alone whose inputs differ


def inputs_by_step(trace: Trace, steps: Steps) -> dict[int, StepInputs]:
    """Return how much each step multiplies, by its number; nothing where shapes do not tell it of all of them."""
    at = steps.of(trace.multiplied_at.start + trace.header.base_ns)
    by_name: dict[str, list[int]] = {}
    for name in np.unique(trace.multiplied_at.name).tolist():
        own = (trace.multiplied_at.name == name) & (at >= 0)
        if own.any():
            sums = np.bincount(at[own], trace.multiplied_at.elements[own], minlength=len(steps))
            by_name[trace.names[name]] = list(map(round, sums.tolist()))
    if len(by_name) > 1:
        by_name.pop(CALLS_OTHERS, None)
    whole = [sum(own) for own in zip(*by_name.values(), strict=True)]
    if not whole or not all(whole):
        return {}
    usual = {name: statistics.median_low(own) for name, own in by_name.items()}
    usual_load = statistics.median_low(whole)
    return {
        number: StepInputs(
            times_load=round(load / usual_load, 4),
            times={
                name: round(own[index] / usual[name], 4)
                for name, own in by_name.items()
                if usual[name] and abs(own[index] - usual[name]) > _ALIKE * usual[name]
            },
        )
        for index, (number, load) in enumerate(zip(steps.numbers.tolist(), whole, strict=True))
    }


def inputs_by_activity(trace: Trace, start: Sequence[int], end: Sequence[int], kind: Sequence[int]) -> list[int]:
    """Return the elements that each operator of a host multiplies, those that it calls included, by its activity,
    ascending by start; 0 where it multiplies nothing, or shapes do not tell.
    """
    found = np.zeros(len(start), np.int64)
    rows = np.flatnonzero(np.array(kind, np.int64) == COMPUTE)
    if not rows.size or not trace.multiplied_at.start.size:
        return found.tolist()
    starts, ends = np.array(start, np.int64)[rows], np.array(end, np.int64)[rows]
    called = trace.multiplied_at.start + trace.header.base_ns
    at = np.searchsorted(starts, called, side="right") - 1
    inside = (at >= 0) & (called < ends[np.maximum(at, 0)])
    np.add.at(found, rows[at[inside]], trace.multiplied_at.elements[inside])
    return found.tolist()
