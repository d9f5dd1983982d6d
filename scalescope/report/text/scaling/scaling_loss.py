"""What a step's growth is mostly of, and what to do first by that.

The loss that a study shows comes before a finding of its largest run that is far smaller.
"""

from collections.abc import Sequence

from scalescope.report.drawing.numbers import milliseconds, percent
from scalescope.report.drawing.parts import INFLATION, Part
from scalescope.report.grown import shortened_ms
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import first_to_do, following, todo
from scalescope.report.text.fusing import expected_of_compiling
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.codes import COMPUTED_BY_ALL, Code
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.kinds import is_within_noise
from scalescope.scaling.finding.order import weight
from scalescope.scaling.findings.cuts import remedies_of_cuts
from scalescope.scaling.study_answer import Waterfall

#: A part of the growth that is less of the step, or of the growth, is not what a study is about.
_OF_STEP, _OF_GROWTH = 0.1, 0.5
#: What cuts cost has one known cause and one known remedy: it is said from a hundredth of the step.
_OF_STEP_CUT = 0.01
#: A cause whose part grew by less than this share of what it costs was there on the first count as well.
_OF_COST = 0.5
#: What ends advice that makes steps quicker on every count.
NOT_THE_SCALING = " (speeds the step, not the scaling)"
#: Causes that a rank by itself has as well, on all ranks alike, and the part of its step that they cost.
_ALSO_OF_ONE: dict[Code, str] = {
    "data_loading": "idle_data",
    "host_stall": "idle_launch",
    "host_bound": "idle_launch",
    **dict.fromkeys(COMPUTED_BY_ALL, "compute"),
    "synchronising": "idle_launch",
    "recompilation": "idle_launch",
    "allocation": "idle_launch",
    "copies": "exposed_memory",
}
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


def loss_clause(fall: Waterfall, steps: Sequence[tuple[Part, float]], part: Part, ms: float) -> str:
    """Return what most of the growth is, to end a first sentence with. `steps`: the growth's parts."""
    if shortened_ms(steps):  # no share of a whole: other parts shrank
        return f"{part.name} makes a step {milliseconds(ms)} longer"
    return f"{percent(ms / fall.growth_ms, 0)} of the step's growth is {part.name}"


def cuts_cost_ms(fall: Waterfall) -> float | None:
    """Return what cutting the compiled graph at gradient buckets costs at most, ms a step: the kernels that one rank's
    whole graph does not have. None where nothing was cut, or where that is not worth a word. Of a growth beyond noise.
    """
    more_ms = fall.compute_more_work_ms
    if not fall.only_larger_cut or more_ms is None:
        return None
    return more_ms if more_ms >= _OF_STEP_CUT * fall.to_step_ms else None


def cuts_clause(fall: Waterfall, ms: float) -> str:
    """Return what the cuts cost, to end a first sentence with."""
    share = f"{percent(ms / fall.growth_ms, 0)} of the step's growth" if ms <= fall.growth_ms else milliseconds(ms)
    return f"up to {share} is what cutting the compiled graph at gradient buckets costs"


def cuts_advice(ms: float, then: str, run: RunAnalysis) -> str:
    """Return what to do about the cuts of a run's graph, before what else helps. With fewer of them all-reduces begin
    later, and what that lays bare only a run tells."""
    fewer, none = (
        cure_text(one) if one.overrides else f"{cure_text(one)} ({cure_elsewhere(one)})"
        for one in remedies_of_cuts(run.origin)
    )
    least = "less what all-reduces that begin later lay bare: try both"
    told = f"{fewer}, or {none}; up to {milliseconds(ms)} a step, {least}"
    return f"{told}{f'; beyond that, {then}' if then else '.'}"


def speeds_alone(finding: Finding, steps: Sequence[tuple[Part, float]]) -> bool:
    """Tell whether a cause is one that the step of the first count has nearly as well: mending it makes steps quicker
    on every count, and none scale better. `steps`: the growth's parts.

    What one rank has beyond the others, and all that ranks send, is there with several ranks alone.
    """
    if finding.rank is not None or finding.ms is None or finding.code not in _ALSO_OF_ONE:
        return False
    grown = sum(ms for part, ms in steps if part.key == _ALSO_OF_ONE[finding.code])
    return grown < _OF_COST * finding.ms


def loss_before(
    fall: Waterfall,
    steps: Sequence[tuple[Part, float]],
    run: RunAnalysis,
    *,
    remedy: str,
    best: str,
    finding: Finding | None,
) -> str:
    """Return what to do first: about what most of the growth is, where that may bring more than the best finding.

    A finding that makes steps quicker and none scale better comes last, and says so. `steps`: the growth's parts;
    `remedy`: against the largest of them, "" where there is none; `best`: what to do by the largest run's findings, and
    `finding` what that is to mend, where it says nothing else.
    """
    first, text = first_to_do(run.findings), best
    part, ms = max(steps, key=lambda step: step[1])
    expected = expected_of_compiling(run)
    if quicker := finding is not None and speeds_alone(finding, steps):
        text = f"{text.removesuffix('.')}{NOT_THE_SCALING}."
        if fall.growth_ms < _OF_STEP * fall.to_step_ms:
            return text
        scaling = [one for one in following(run.findings) if not speeds_alone(one, steps) and not is_within_noise(one)]
        first, expected = next(iter(scaling), None), 0.0
        text = f"{todo(first, run)}; {text}" if first is not None else text
    elif largest_part(fall, steps) is None:
        return text
    if first is not None and max(weight(first), expected) >= _BOUND * ms:
        return text
    then = text if quicker or (first is not None and not is_within_noise(first)) else ""
    of_growth = f"{milliseconds(ms)} of the {milliseconds(fall.growth_ms)} by which a step grew"
    of_growth = of_growth if ms <= fall.growth_ms else f"{milliseconds(ms)} a step"
    if part.key == INFLATION.key and run.activity == "cpu":
        told = (
            f"more cores or memory bandwidth a rank, which the ranks of a machine share: {of_growth} are {part.name}."
        )
        return f"{told} What one can change: {then}" if then else told
    if not remedy:
        return text
    told = f"{of_growth} are {part.name}: {remedy.removesuffix('.')}"
    return f"{told}; beyond that, {then}" if then else f"{told}."
