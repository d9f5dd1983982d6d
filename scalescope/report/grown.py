"""What shares of a step's growth are of: of what became longer, so that they add up to all of it."""

from collections.abc import Sequence

from scalescope.report.drawing.parts import Part

#: What became shorter is told from this share of the growth on: below it, shares add up to that as they are rounded.
_TOLD = 0.01


def lengthened_ms(steps: Sequence[tuple[Part, float]]) -> float:
    """Return by how much those parts of a step that became longer did so, ms. `steps`: the growth's parts."""
    return sum(ms for _, ms in steps if ms > 0)


def shortened_ms(steps: Sequence[tuple[Part, float]]) -> float:
    """Return by how much the others became shorter, ms; 0 where that is not worth a word."""
    short = -sum(ms for _, ms in steps if ms < 0)
    return short if short >= _TOLD * sum(ms for _, ms in steps) else 0.0
