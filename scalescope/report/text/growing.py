"""Steps that grow, in words: by how much a step, from what to what, and what it is that grows."""

from scalescope.records.statistics import digits_of
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import figure, milliseconds, rate
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import GrowingSteps

#: What is less a step is told in µs.
_SMALL_MS = 0.1

_KEPT = (
    "find what is kept from step to step and gone through again: a list or a cache that is never emptied, losses kept "
    "with their graphs (keep loss.item() or loss.detach()), hooks that are registered in every step, a file read from "
    "its beginning"
)
_LOADED = (
    "find what the dataset keeps from batch to batch and goes through again, or reads from its beginning; samples that "
    "become longer take longer"
)
_COMPUTED = (
    "find what is computed on more from step to step: a list or a cache that is never emptied, losses kept with their "
    "graphs (keep loss.item() or loss.detach()), inputs that become longer"
)


def growing_clause(growing: GrowingSteps) -> str:
    """Return by how much they grow, and what does, without a full stop."""
    unit, scale = ("ms", 1.0) if growing.a_step_ms >= _SMALL_MS else ("µs", 1e3)
    digits = min(max(digits_of(scale * (growing.high_ms - growing.low_ms) / 2), 1), 3)
    value, low, high = (figure(scale * ms, digits) for ms in (growing.a_step_ms, growing.low_ms, growing.high_ms))
    lengths = f"from {milliseconds(growing.from_ms)} at step {growing.first} to {milliseconds(growing.to_ms)}"
    what = _what(growing)
    return (
        f"each step takes {value} {unit} ({low} to {high}) longer than the one before, {lengths} at step "
        f"{growing.last}{what}"
    )


def growing_advice(growing: GrowingSteps) -> str:
    """Return what to do about them."""
    whose = f"on rank {growing.rank}, " if growing.rank is not None else ""
    return whose + {"idle_data": _LOADED, "compute": _COMPUTED}.get(growing.part or "", _KEPT)


def growing_rates(run: RunAnalysis, a_second: float, unit: str) -> str:
    """Return how much is done a second where steps grow: with the profiled steps' length, at first and at last."""
    growing, times = run.growing, run.step_times
    if growing is None or times is None or times.measured_step_ms is None:
        return ""
    done = a_second * times.measured_step_ms
    return (
        f"It does {rate(done / growing.from_ms)} {unit}/s at step {growing.first} and {rate(done / growing.to_ms)} at "
        f"step {growing.last}"
    )


def _what(growing: GrowingSteps) -> str:
    if growing.name is not None and growing.more_calls is not None:
        return f": each launches {figure(growing.more_calls, 0)} {growing.name} more"
    if growing.part is not None:
        whose = f"rank {growing.rank}'s " if growing.rank is not None else ""
        return f": what grows is {whose}{parts.named(growing.part).name}"
    if growing.rank is not None:
        return f": what grows is rank {growing.rank}'s own time, which the others wait for"
    return ""
