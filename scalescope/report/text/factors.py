"""What the two factors of a scaling efficiency multiply to, where that is not the efficiency."""

from collections.abc import Sequence

from scalescope.report.drawing.numbers import listing, percent
from scalescope.scaling.study_answer import ScalingPoint

#: A product that is so near the efficiency is it.
_SAME = 0.02


def factors_sentence(points: Sequence[ScalingPoint]) -> str:
    """Return that factors are of the profiled steps, and come to what, where the efficiency is another."""
    apart = []
    for one in points:
        if one.compute_factor is None or one.parallel_factor is None:
            continue
        product = one.compute_factor * one.parallel_factor
        if abs(product - one.efficiency) > _SAME * one.efficiency:
            apart.append(f"{percent(product)} on {one.world_size} ranks, where {percent(one.efficiency)} is measured")
    if not apart:
        return ""
    return f"The two factors are of the profiled steps: together they come to {listing(apart)} without a profiler."
