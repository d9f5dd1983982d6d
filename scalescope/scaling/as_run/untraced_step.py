"""A step that was not traced, and how long it would be in the mean of steps some of which are longer every so often."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from scalescope.scaling.answer_steps import OnceSteps, RecurringSteps
from scalescope.scaling.costs.interval import Interval


class Untraced(msgspec.Struct, frozen=True):
    """A step that was not traced, ms, and who says so."""

    step_ms: Interval
    source: Literal["steps", "given", "metadata"]
    job_ms: float | None = None  # the median of all steady steps, where `step_ms` is of those beside the window
    recurring: RecurringSteps | None = None  # the job's that are longer every so often, which are in neither
    once: OnceSteps | None = None  # steps of the window that came once, which are in neither
    agrees: bool = False  # before and after the window: what recorded steps are longer by is the window's doing
    longer_ms: float = 0.0  # what such among the replayed steps add to their mean

    @property
    def pace_ms(self) -> float:
        """The step at whose pace operators are told, ms: the job's own, where that may be the one beside the window."""
        near, all_ms = self.step_ms, self.job_ms
        return all_ms if all_ms is not None and near.low <= all_ms <= near.high else near.value


def with_its_long_ones(untraced: Untraced, steps: Sequence[int]) -> Untraced:
    """Return the untraced step with what steps that are longer every so often add to the mean of these.

    The medians that tell it are of those between: what the longer ones add to a mean is no slower operator's.
    """
    often, once = untraced.recurring, untraced.once
    if not steps or (often is None and once is None):
        return untraced
    longer_ms = 0.0 if once is None else once.longer_ms(steps)
    if often is not None:
        longer_ms += often.longer_ms * sum(often.begins_in(step) for step in steps) / len(steps)
    return msgspec.structs.replace(untraced, longer_ms=longer_ms)
