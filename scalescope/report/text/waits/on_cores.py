"""How much of what counts as compute ranks do on a core, in words: what they wait for one no trace places in a step."""

from scalescope.report.drawing.numbers import percent
from scalescope.scaling.answer import Efficiency


def on_a_core(factors: Efficiency) -> str:
    """Return which share of the step is compute on a core: `at most 10.0%`, `38.9% to 68.3%`; "" where all of it is."""
    if factors.on_cores_at_most is None:
        return ""
    most = percent(factors.on_cores_at_most)
    return f"at most {most}" if factors.on_cores_at_least is None else f"{percent(factors.on_cores_at_least)} to {most}"


def waits_within(factors: Efficiency, decimals: int = 1) -> str:
    """Return which share of the step counts as compute and waits for a core: `at least 80.0%`, `2.4% to 31.8%`; ""
    where none is told.
    """
    if factors.on_cores_at_most is None:
        return ""
    least = percent(max(0.0, factors.parallel - factors.on_cores_at_most), decimals)
    if factors.on_cores_at_least is None:
        return f"at least {least}"
    return f"{least} to {percent(factors.parallel - factors.on_cores_at_least, decimals)}"
