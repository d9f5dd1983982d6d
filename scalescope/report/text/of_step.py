"""A finding's share of the step, and of which step that is where it is another than the one that is told first."""

from collections.abc import Sequence

import msgspec

from scalescope.report.drawing.numbers import milliseconds, percent
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.of_job import SAME, interval_of_job, is_step_of_job
from scalescope.scaling.finding.figures import NOT_IN_STEPS
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.kinds import has_upper_end, is_now_and_then, is_of_steady_steps

_MEAN, _MEAN_PROFILED, _WITHOUT = "mean", "mean profiled", "without recording"
#: A mean step that is no farther from the step as run than this, and within its interval, is as long.
_AS_LONG = 0.03
#: What a step is called that is another than the job's own: its length is told first, and once beside that one's.
PROFILED = "profiled"


def step_named(step_ms: float, which: str, *, first: bool = False) -> str:
    """Return `140.0 ms step`, with which one it is behind it, or `profiled step` where how long that is, is told.

    `first`: in a first sentence nothing is told before: `140.0 ms profiled step`.
    """
    if which == PROFILED:
        return f"{milliseconds(step_ms)} profiled step" if first else "profiled step"
    return f"{milliseconds(step_ms)} step {which}".rstrip()


def of_mean_step(run: RunAnalysis | None, finding: Finding, mean_ms: float) -> str:
    """Return a finding's share of the job's mean step, with that one's length: `47.7% of the 157.8 ms mean step`; of
    the step as run where the two are as long: `47.8% of the 157.5 ms step`.
    """
    own_ms = step_of_mean_ms(run, finding)
    if own_ms is not None:
        return f"{percent((finding.ms or 0.0) / own_ms)} of the {milliseconds(own_ms)} step"
    return f"{percent((finding.ms or 0.0) / mean_ms)} of the {milliseconds(mean_ms)} mean step"


def step_of_mean_ms(run: RunAnalysis | None, finding: Finding) -> float | None:
    """Return the step as run, ms, where the mean step that a finding of steady steps is a share of is as long, as far
    as that is known: a second length of one step would be read as another's. None where it is not.
    """
    told = run.as_run if run is not None else None
    if (
        told is None
        or told.step_ms is None
        or not is_of_steady_steps(finding)
        or not finding.ms
        or not finding.fraction
    ):
        return None
    mean_ms, step = finding.ms / finding.fraction, interval_of_job(told)
    as_long = step.low <= mean_ms <= step.high and abs(mean_ms - step.value) <= _AS_LONG * step.value
    return step.value if as_long else None


def of_step(run: RunAnalysis, finding: Finding) -> str:
    """Return of which step a finding's share is: `mean`, `mean profiled`, `without recording`, `as profiled`; "" where
    it is as run.

    What all steps tell is a share of their mean, which is longer than the median where a few are long. What is there in
    some of the profiled steps is a share of the mean of these, with it as often as it is there: no step of the job's.
    """
    told = run.as_run
    if is_of_steady_steps(finding):
        step = told.step_ms if told is not None else None
        if step is None and run.step_times is not None:
            step = run.step_times.measured_step_ms
        if step is None or not finding.fraction or finding.ms is None:
            return ""
        return _MEAN if abs(finding.ms / finding.fraction - step) > SAME * step else ""
    if told is None or told.step_ms is None or finding.ms is None or not finding.fraction:
        return ""
    own = finding.ms / finding.fraction
    if told.parts_ms is None or not told.ranks:
        # the job's own steps are told, and nothing is replayed: what is priced is priced of the profiled ones
        return "as profiled" if abs(own - told.step_ms) > SAME * told.step_ms else ""
    if not is_now_and_then(finding) and abs(own - told.step_ms) <= SAME * told.step_ms:
        return ""
    if is_step_of_job(told):
        return _MEAN if is_now_and_then(finding) and abs(own - told.step_ms) > SAME * told.step_ms else ""
    if abs(own - told.parts_ms.value) <= SAME * told.parts_ms.value:
        return _WITHOUT
    profiled = is_now_and_then(finding) and all(row.name != NOT_IN_STEPS for row in finding.evidence)
    return _MEAN_PROFILED if profiled else _MEAN


def shared_step_ms(run: RunAnalysis, finding: Finding) -> float | None:
    """Return the step as run, ms, where a finding of other profiled steps is told as a share of it; else None."""
    told = run.as_run
    if told is None or is_step_of_job(told) or is_of_steady_steps(finding) or not finding.ms or not finding.fraction:
        return None
    return None if of_step(run, finding) else told.step_ms


def with_one_basis(run: RunAnalysis, finding: Finding) -> tuple[Finding, str]:
    """Return a finding with its share as one of the step that the first finding's is of, and which that is: see
    `of_step`. Shares of two lengths in one list are read as those of one.
    """
    first = next((one for one in run.findings if one.ms and one.fraction), None)
    own_ms = finding.ms / finding.fraction if finding.ms and finding.fraction else None
    if first is None or first.ms is None or not first.fraction or own_ms is None or finding.ms is None:
        return finding, of_step(run, finding)
    listed = {(one.code, one.rank) for one in run.findings}
    if (as_run_ms := step_of_mean_ms(run, first)) is not None and (finding.code, finding.rank) in listed:
        return msgspec.structs.replace(finding, fraction=finding.ms / as_run_ms), ""
    basis_ms = first.ms / first.fraction
    if abs(own_ms - basis_ms) <= SAME * basis_ms or (finding.code, finding.rank) not in listed:
        return finding, of_step(run, finding)
    return msgspec.structs.replace(finding, fraction=finding.ms / basis_ms), of_step(run, first)


def basis_sentence(run: RunAnalysis, findings: Sequence[Finding]) -> str:
    """Return of which step all shares of a list are, where some of these findings are known as those of others."""
    told = [(one, *with_one_basis(run, one)) for one in findings if one.fraction]
    which = next((step for one, based, step in told if based is not one), None)
    first = next((one for one in run.findings if one.ms and one.fraction), None)
    if which is None or first is None or not first.ms or not first.fraction:
        return ""
    length = milliseconds(step_of_mean_ms(run, first) or first.ms / first.fraction)
    step = f"{length} {which} step" if which in (_MEAN, _MEAN_PROFILED) else f"{length} step {which or 'as run'}"
    return f"All shares are of the {step}."


def share(finding: Finding, run: RunAnalysis | None) -> str:
    """Return a finding's share of the step that the first finding's is of, after a comma: `, 4.5%`, `, 18.1% of the
    profiled step`, `, 47.7% of the 157.8 ms mean step`, `, 6.8% of the 207.4 ms mean profiled step`. Of another step
    than its own it is told without which one that is, since the first one's says so.

    "" without any.
    """
    if finding.fraction is None:
        return ""
    based, which = with_one_basis(run, finding) if run is not None else (finding, "")
    told = f", {_shares(based)}"
    if based is not finding or not which or not finding.fraction or finding.ms is None:
        return told
    if which in (_MEAN, _MEAN_PROFILED):  # it is no length that is told elsewhere
        return f"{told} of the {milliseconds(finding.ms / finding.fraction)} {which} step"
    # the profiled ones are others than the job's own, beside whose length theirs is told
    return f"{told} of the {step_named(finding.ms / finding.fraction, PROFILED if which == _WITHOUT else which)}"


def _shares(finding: Finding) -> str:
    """Return a share, or from which to which it may be where a cost lies between two ends."""
    least = finding.fraction or 0.0
    if not has_upper_end(finding) or not finding.ms or finding.high_ms is None:
        return percent(least)
    return f"{percent(least)} to {percent(least * finding.high_ms / finding.ms)}"
