"""What the step would be without what was found in it: the findings as predictions, in their own order.

Where nobody asks for a change of his own, these are the changes worth a look, and no others: an analysis that names
rank 1's sleep, and a list of changes that has faster links first, would contradict each other.
"""

from scalescope.records.errors import UserError
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.of_job import FAR, beyond_the_job_ms, is_step_of_job, tell_step_of_job
from scalescope.scaling.as_run.step import is_known_as_run, step_as_run
from scalescope.scaling.as_run.untraced import given_steps
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.finding_list import told_of
from scalescope.scaling.findings.add import add_findings
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.load import Target
from scalescope.scaling.replay.whatif.prediction import ChangedStep, NothingFound, Prediction, WhatIf
from scalescope.scaling.run import explain_run
from scalescope.scaling.verdicts.step_rows.doubt import is_doubtful


def without_found(target: Target, step_ms: float | None = None) -> WhatIf:
    """Return what a target's step would be without each thing that was found, most costly first.

    `step_ms`: the step without a profiler. Raises UserError where the traces cannot be replayed, and for a step that is
    none.
    """
    given = given_steps([step_ms] if step_ms is not None else [], [target.path]).get(target.path)
    explained = explain_run(target.path, for_replay=True)
    add_findings(target.path, [explained.analysis], [], explained.records, None, given, explained.host)
    tell_step_of_job(explained.analysis)
    gradients = any(one.gradients for one in explained.records.values())
    return as_whatif(target.name, explained.analysis, gradients=gradients)


def as_whatif(name: str, analysis: RunAnalysis, *, gradients: bool = False) -> WhatIf:
    """Return an analysed run's findings as predictions. Raises UserError where it was not replayed.

    `gradients`: its traces tell DDP's apart.
    """
    if analysis.replay is None:
        why = next((f": {reason}" for reason in analysis.quality.reasons if analysis.quality.verdict == "unusable"), "")
        raise UserError(analysis.unpriced.text if analysis.unpriced is not None else f"{name} is not replayed{why}")
    step, of, own = _changed_step(analysis)
    if analysis.unpriced is not None:
        return WhatIf(name=name, replay=analysis.replay, step_ms=step, of=of, own_ms=own, unpriced=analysis.unpriced)
    every = [one for one in analysis.findings if one.code != "nothing"]
    found = [one for one in told_of(analysis) if one.code != "nothing"] or every  # as they are listed, if any is
    nothing = None
    if analysis.findings and not found:
        nothing = NothingFound(exchanges=any(one.group_size != 1 for one in analysis.collectives), gradients=gradients)
    return WhatIf(
        name=name,
        replay=analysis.replay,
        step_ms=step,
        of=of,
        own_ms=own,
        predictions=[_prediction(one, step) for one in found],
        nothing_found=nothing,
    )


def _changed_step(analysis: RunAnalysis) -> tuple[float, ChangedStep, float | None]:
    """Return the step that costs are told of, ms, which one it is, and the job's own where it is another: as an
    analysis has them.
    """
    told, parts = analysis.as_run, step_as_run(analysis)[0].value
    if told is None or told.step_ms is None or not is_known_as_run(analysis):
        return parts, "as_profiled", told.step_ms if told is not None else None
    if told.source == "range" and told.replayed_ms is None:
        return parts, "likely", None
    if is_step_of_job(told) or not (is_doubtful(analysis) or abs(beyond_the_job_ms(told)) > FAR * told.step_ms):
        return told.step_ms, "as_run", None
    return parts, "without_recording", told.step_ms


def _of_ranks(finding: Finding) -> str:
    """Return of which ranks a finding is taken out, and which others' are out as well for it to bring that."""
    ranks, also = ranks_of(finding), finding.also_late
    who = f" of rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else ""
    if also is None or also.order == "first":
        return who
    return f"{who}, {'after' if also.order == 'after' else 'with'} that of rank {', '.join(map(str, also.ranks))}"


def _prediction(finding: Finding, step_ms: float) -> Prediction:
    who = _of_ranks(finding)
    what = f"without {finding.code}{who}{', at most' * finding.at_most}{', at least' * finding.at_least}"
    if finding.ms is None or finding.low_ms is None or finding.high_ms is None:
        return Prediction(change=Change(), what=what, step_ms=None, reason="it is not known without --step-ms")
    return Prediction(
        change=Change(),
        what=what,
        step_ms=step_ms - finding.ms,
        change_ms=-finding.ms,
        low_ms=-finding.high_ms,
        high_ms=-finding.low_ms,
        fraction=-finding.ms / step_ms,
        at_least=finding.at_least,
    )
