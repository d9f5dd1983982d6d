"""What the two factors of a scaling efficiency multiply to, where that is not the efficiency."""

from collections.abc import Sequence

from scalescope.report.drawing.numbers import listing, percent
from scalescope.report.text.waits.on_cores import on_a_core
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.study_answer import ScalingPoint

#: A product that is so near the efficiency is it.
_SAME = 0.02


def factors_sentence(points: Sequence[ScalingPoint]) -> str:
    """Return that factors are of the profiled steps, and come to what, where the efficiency is another."""
    apart = [
        f"{percent(product)} on {one.world_size} ranks, where {percent(one.efficiency)} is measured"
        for one, product in _apart(points)
    ]
    if not apart:
        return ""
    return f"The two factors are of the profiled steps: together they come to {listing(apart)} without a profiler."


def factors_line(points: Sequence[ScalingPoint]) -> str:
    """Return the same of several series in a short line; "" where all factors multiply to the efficiency."""
    apart = [f"{percent(product)} ({one.series}, {one.world_size} ranks)" for one, product in _apart(points)]
    told = "The factors are of the profiled steps and multiply to"
    return f"{told} {listing(apart)}; efficiency is measured without a profiler." if apart else ""


def cores_sentence(points: Sequence[ScalingPoint], runs: Sequence[RunAnalysis]) -> str:
    """Return that compute, in the factors and in a step's growth, holds waits for cores, and what is left without them;
    "" where no finding of these runs is of such waits.
    """
    efficiencies = {run.name: run.efficiency for run in runs}
    several, told = len({point.series for point in points}) > 1, []
    for point in points:
        factors = efficiencies.get(point.run)
        if factors is not None and factors.on_cores_at_most is not None:
            left, whole = on_a_core(factors), percent(factors.parallel)
            where = f"{point.world_size} ranks{f' of {point.series}' * several}"
            told.append(f"of the {whole} of the profiled step on {where} {left} is on a core")
    if not told:
        return ""
    return f"Waits for cores count as compute, in the factors and in the step's growth: {listing(told)}."


def _apart(points: Sequence[ScalingPoint]) -> list[tuple[ScalingPoint, float]]:
    """Return the points whose factors multiply to another figure than their efficiency, each with that."""
    known = [
        (one, one.compute_factor * one.parallel_factor)
        for one in points
        if one.compute_factor is not None and one.parallel_factor is not None
    ]
    return [(one, product) for one, product in known if abs(product - one.efficiency) > _SAME * one.efficiency]
