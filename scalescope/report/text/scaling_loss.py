"""What a step's growth is mostly of, and what to do first by that.

The loss that a study shows comes before a finding of its largest run that is far smaller.
"""

from collections.abc import Sequence

from scalescope.report.drawing.numbers import milliseconds, percent
from scalescope.report.drawing.parts import INFLATION, Part
from scalescope.report.text.findings import first_to_do
from scalescope.report.text.fusing import expected_of_compiling
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding import is_within_noise, weight
from scalescope.scaling.study_answer import Waterfall

#: A part of the growth that is less of the step, or of the growth, is not what a study is about.
_OF_STEP, _OF_GROWTH = 0.1, 0.5
#: What a part grew by is the most that can be had of it: a bound, which counts half, as a finding's does.
_BOUND = 0.5


def largest_part(fall: Waterfall, steps: Sequence[tuple[Part, float]]) -> tuple[Part, float] | None:
    """Return what most of a step's growth is, ms; None where no part is, or where it is little of the step.

    `steps`: the growth's parts, which add up to it.
    """
    part, ms = max(steps, key=lambda step: step[1])
    if ms < _OF_STEP * fall.to_step_ms or not _OF_GROWTH * fall.growth_ms <= ms:
        return None
    return part, ms


def loss_clause(fall: Waterfall, part: Part, ms: float) -> str:
    """Return what most of the growth is, to end a first sentence with."""
    if ms > fall.growth_ms:  # no share of a whole: other parts shrank
        return f"{part.name} makes a step {milliseconds(ms)} longer"
    return f"{percent(ms / fall.growth_ms, 0)} of the step's growth is {part.name}"


def loss_before(fall: Waterfall, part: Part, ms: float, run: RunAnalysis, remedy: str, best: str) -> str:
    """Return what to do first: about what most of the growth is, where that may bring more than the best finding.

    `remedy`: against the part, "" where there is none; `best`: what to do by the largest run's findings.
    """
    first = first_to_do(run.findings)
    if first is not None and max(weight(first), expected_of_compiling(run)) >= _BOUND * ms:
        return best
    then = best if first is not None and not is_within_noise(first) else ""
    of_growth = f"{milliseconds(ms)} of the {milliseconds(fall.growth_ms)} by which a step grew"
    of_growth = of_growth if ms <= fall.growth_ms else f"{milliseconds(ms)} a step"
    if part.key == INFLATION.key and run.activity == "cpu":
        told = (
            f"more cores or memory bandwidth a rank, which the ranks of a machine share: {of_growth} are {part.name}."
        )
        return f"{told} What one can change: {then}" if then else told
    if not remedy:
        return best
    told = f"{of_growth} are {part.name}: {remedy.removesuffix('.')}"
    return f"{told}; beyond that, {then}" if then else f"{told}."
