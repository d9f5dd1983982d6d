"""What a step loses where the findings explain little of it: then that comes first, and not the largest of them."""

from collections.abc import Sequence

from scalescope.report.drawing.numbers import milliseconds
from scalescope.report.drawing.parts import Part
from scalescope.report.text.of_step import step_named
from scalescope.report.text.recurring import is_told
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.codes import COMPUTED_BY_ALL
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.kinds import (
    is_certain,
    is_lost_in_noise,
    is_now_and_then,
    is_of_steady_steps,
    is_within_noise,
)
from scalescope.scaling.verdicts.step_rows.doubt import longer_for_long_ones_ms

#: A step that loses less of its time computes for the most part; findings explain what it loses that cover so much.
_WORTH_A_LEAD, _EXPLAINED = 0.3, 1 / 3
#: One part of the partition is what is lost where it is so much of it.
_MOST = 0.5
_COMMUNICATION = ("exposed_transfer", "exposed_wait", "exposed_unsplit")


def is_hardly_explained(found: float, lost: float) -> bool:
    """Tell whether much of a step is lost, and what is found is little of that; both as shares of the step."""
    return lost >= _WORTH_A_LEAD and found < _EXPLAINED * lost


def unexplained_loss(
    run: RunAnalysis, step_ms: float, compute: float, lost: Sequence[tuple[Part, float]], *, which: str = ""
) -> str:
    """Return what most of a step goes to beside compute, to stand before the findings; "" where they explain it.

    `compute`: its share of the step. `lost`: the other parts, largest first, ms. `which`: what the step is where it
    is not the one as run.
    """
    told = [one for one in run.findings if one.ms is not None and not is_lost_in_noise(one) and _is_of_losses(one)]
    whole = (1 - compute) * step_ms
    if not told or not lost or whole < _WORTH_A_LEAD * step_ms or run.findings[0].ms is None:
        return ""
    if is_now_and_then(run.findings[0]) or is_of_steady_steps(run.findings[0]):
        return ""  # what that costs is not in these shares
    # what recurs, and the other ranks' wait for it, has its cause
    explained = sum(_explains_ms(one) for one in told) + (longer_for_long_ones_ms(run) if is_told(run) else 0.0)
    part, ms = lost[0]
    name, key = part.name, part.key
    sent = [took for one, took in lost if one.key in _COMMUNICATION]
    if ms < _MOST * whole and len(sent) > 1:  # of which a trace may tell a part alone from waiting
        name, key, ms = "exposed communication", _COMMUNICATION[0], sum(sent)
    if explained >= _EXPLAINED * whole or ms < _MOST * whole:
        return ""
    if run.findings[0].code in (part.key, key):
        return ""  # which says itself how much is bare, and what of that can be had
    count = _calls(run) if key in _COMMUNICATION else ""
    step = step_named(step_ms, which, first=True)
    return (
        f"{milliseconds(ms)} of the {step} are {name}{count}, and what is found explains "
        f"no more than {milliseconds(explained)} of it; "
    )


def _is_of_losses(finding: Finding) -> bool:
    """Tell whether a finding is of what a step loses beside its compute; what all ranks compute at length is not."""
    return finding.code not in COMPUTED_BY_ALL


def _explains_ms(finding: Finding) -> float:
    """Return what a finding explains of a step: of what is surely there and may cost nothing, all it may cost."""
    unknown = is_certain(finding) and is_within_noise(finding)
    return (finding.high_ms if unknown else finding.ms) or 0.0


def _calls(run: RunAnalysis) -> str:
    steps = {one.step for one in run.steps}
    held = sum(one.step in steps for one in run.collectives)
    calls = round(held / len(steps)) if steps else 0
    return f", of {calls} collective{'s' * (calls > 1)} a step" if calls else ""
