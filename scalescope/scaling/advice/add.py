"""Adds replays and advice to analyses: of a run, of plain traces, of a study's largest run of each job."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.scaling.advice.advice import advise
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.calibrate import Untraced
from scalescope.scaling.as_run.step import take_recording_out
from scalescope.scaling.as_run.untraced import untraced_of_run
from scalescope.scaling.costs.points import Launch
from scalescope.scaling.rank.record import RankRecord
from scalescope.scaling.replay.load import Target, find_targets, open_replayer
from scalescope.scaling.verdicts.steady import slowed_by_profiling

#: How reasons in an analysis' quality begin that say why there can be no advice.
_WHY_NONE = ("the step is not replayed", "nothing is predicted", "nothing is advised")


def why_no_advice(analysis: RunAnalysis) -> str:
    """Return in words why a run that was looked at has no advice that a setting could follow."""
    told = next((reason for reason in analysis.quality.reasons if reason.startswith(_WHY_NONE)), None)
    return told or "nothing that a setting could change is worth trying"


def is_looked_at(analysis: RunAnalysis) -> bool:
    """Tell whether a run was one to give advice on: a study's largest of each job."""
    return analysis.replay is not None or any(one.startswith(_WHY_NONE) for one in analysis.quality.reasons)


def add_advice(
    path: Path,
    analyses: Sequence[RunAnalysis],
    sweeps: Sequence[Launch],
    records: Mapping[int, RankRecord] | None = None,
    jobs: int | None = None,
    untraced: Untraced | None = None,
) -> None:
    """Fill in `replay`, `as_run` and `advice` of what is replayed at a path: a run's own analysis, or a study's runs'.

    `sweeps` are other than the study's own. `records`: of a run's own traces, where they are known already.
    `jobs`: processes that work out what changes do; None: as many as pay off. `untraced`: the step as the user knows it
    from elsewhere; None: as the run's own steps say.
    Where nothing can be replayed, the answer says why: that is no reason to go without an analysis.
    """
    try:
        targets = find_targets(path)
    except UserError:
        return  # no traces at all, which the analyses say themselves
    by_name = {analysis.name: analysis for analysis in analyses}
    for target in targets:
        analysis = analyses[0] if target.path == path else by_name.get(target.name)
        if analysis is not None and analysis.ranks and analysis.quality.verdict != "unusable":
            _advise(target, analysis, sweeps, records if target.path == path else None, jobs, untraced)


def _advise(
    target: Target,
    analysis: RunAnalysis,
    sweeps: Sequence[Launch],
    records: Mapping[int, RankRecord] | None,
    jobs: int | None,
    untraced: Untraced | None,
) -> None:
    try:
        replayer = open_replayer(target, analysis, sweeps, records, jobs)
    except UserError as error:
        analysis.quality.reasons.append(f"the step is not replayed: {error}")
        return
    analysis.replay = replayer.replay
    analysis.as_run = take_recording_out(replayer, untraced or untraced_of_run(target.path))
    config = RunFolder(target.path).config
    text = config.read_text("utf-8", errors="replace") if config.is_file() else ""
    analysis.advice = advise(replayer, analysis, text)
    if replayer.stalled is not None:
        analysis.quality.reasons.append(f"nothing is predicted: {replayer.stalled}")
    elif slowed_by_profiling(analysis) and not analysis.advice:
        analysis.quality.reasons.append(
            "nothing is advised: profiling makes the steps so much longer that what they lose is not what the job loses"
        )
    elif not replayer.replay.faithful:
        off = 100 * replayer.replay.error
        analysis.quality.reasons.append(f"nothing is predicted: replayed, the step is {off:+.1f}% off the trace")
