"""Adds replays and findings to analyses, over all windows of what is replayed."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from scalescope.records.errors import UserError
from scalescope.records.statistics import with_ranges
from scalescope.scaling.answer import AsRun, Replay, RunAnalysis
from scalescope.scaling.answer_rows import PARTS, Split
from scalescope.scaling.answer_steps import LongerSteps
from scalescope.scaling.as_run.kinds import mean_kinds
from scalescope.scaling.as_run.step import mark_unsteady, step_as_run
from scalescope.scaling.as_run.untraced import untraced_of_run
from scalescope.scaling.as_run.untraced_step import Untraced
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.costs.points import Launch
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.add import add_findings
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.findings.of_rows.shown_step import shown_step
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.replay.load import find_targets
from scalescope.scaling.step_timeline import StepTimeline
from scalescope.scaling.timelines.one_step import step_timeline
from scalescope.scaling.windows.explain import explain_windows, single
from scalescope.scaling.windows.findings import mean_interval, pool_findings


def add_findings_of_windows(
    path: Path,
    explained: Explained,
    sweeps: Sequence[Launch],
    jobs: int | None = None,
    untraced: Untraced | None = None,
) -> None:
    """Fill in `replay`, `as_run` and `findings` of a run: by each of its windows that is replayed, and together.

    See `findings.add.add_findings`.
    """
    if (longer := explained.analysis.longer) is not None:
        _add_of_kinds(path, explained, longer, sweeps, jobs, untraced)
    elif len(explained.windows) < 2:
        add_findings(path, [explained.analysis], sweeps, explained.records, jobs, untraced, explained.host,
                     explained.ready)  # fmt: skip
    else:
        _add_of_each(path, explained, explained.windows, sweeps, jobs, untraced)


def _add_of_kinds(
    path: Path,
    explained: Explained,
    longer: LongerSteps,
    sweeps: Sequence[Launch],
    jobs: int | None,
    untraced: Untraced | None,
) -> None:
    """Fill in what the steps that became longer show, and beside it what those before do."""
    _add_of_each(path, explained, explained.windows or [explained], sweeps, jobs, untraced)
    if (usual := explained.usual) is not None:
        _add_of_each(path, usual, usual.windows or [usual], sweeps, jobs, None)
        longer.usual = usual.analysis.findings
        longer.usual_step_ms = step_as_run(usual.analysis)[0].value


def _add_of_each(
    path: Path,
    explained: Explained,
    windows: Sequence[Explained],
    sweeps: Sequence[Launch],
    jobs: int | None,
    untraced: Untraced | None,
) -> None:
    replayed = []
    for window in windows:
        if not window.records:
            continue
        one = single(window)
        steps = sorted({step.step for step in one.analysis.steps})
        own = untraced or untraced_of_run(path, steps)
        one.analysis.in_situ = explained.analysis.in_situ
        one.analysis.throughput = explained.analysis.throughput
        add_findings(path, [one.analysis], sweeps, one.records, jobs, own, one.host, one.ready)
        replayed.append(one)
    join_windows(explained.analysis, [one.analysis for one in replayed])
    explained.analysis.timeline = _drawn(explained.analysis, replayed)


def add_findings_of_study(
    path: Path, analyses: Sequence[RunAnalysis], sweeps: Sequence[Launch], jobs: int | None
) -> None:
    """Fill in a study's runs: the largest of each job, over all its windows where it has several."""
    alone = {one.name: one for one in analyses}
    try:
        targets = find_targets(path)
    except UserError:
        return  # no traces at all, which the analyses say themselves
    for target in targets:
        analysis = alone.get(target.name)
        if analysis is None or not analysis.ranks or (analysis.windows < 2 and analysis.longer is None):
            continue
        del alone[target.name]
        again = explain_windows(target.path, jobs, for_replay=True)
        again.analysis.in_situ = analysis.in_situ
        add_findings_of_windows(target.path, again, sweeps, jobs)
        for field in ("replay", "as_run", "unpriced", "timeline", "longer"):
            setattr(analysis, field, getattr(again.analysis, field))
        mark_unsteady(analysis)
        keep(analysis, again.analysis.findings)
    add_findings(path, list(alone.values()), sweeps, jobs=jobs)


def join_windows(analysis: RunAnalysis, windows: Sequence[RunAnalysis]) -> None:
    """Put what the replays of windows say into the analysis of all of them."""
    priced = [one for one in windows if one.unpriced is None and one.replay is not None]
    if not priced:
        for one in windows[-1:]:
            analysis.replay, analysis.as_run, analysis.unpriced = one.replay, one.as_run, one.unpriced
        mark_unsteady(analysis)
        return
    if len(windows) == 1:
        analysis.replay, analysis.as_run = priced[0].replay, priced[0].as_run
        mark_unsteady(analysis)
        keep(analysis, priced[0].findings)
        return
    analysis.replay = _replay([one.replay for one in priced if one.replay is not None])
    analysis.as_run = _as_run([one.as_run for one in priced if one.as_run is not None])
    mark_unsteady(analysis)
    step, _ = step_as_run(analysis)
    on_cpus = analysis.activity == "cpu"
    keep(analysis, pool_findings([one.findings for one in priced], step.value, on_cpus=on_cpus))


def _drawn(analysis: RunAnalysis, windows: Sequence[Explained]) -> StepTimeline | None:
    """Return a step that shows what comes first of the findings: of a window that holds it, where not all do."""
    if (shown := shown_step(analysis)) is not None:
        found = [step_timeline(one.analysis, one.records, one.ready, shown) for one in windows]
        some = [one for one in found if one is not None and one.shows == shown.shows]
        if some:
            return min(some, key=lambda one: one.step)
    first = next((one for one in analysis.findings[:1] if one.ms is not None), None)
    having = [] if first is None else [one.analysis for one in windows if _has(one.analysis, first)]
    if not having or len(having) == len(windows):
        return _most_typical([one.analysis.timeline for one in windows if one.analysis.timeline is not None])
    if (drawn := _most_typical([one.timeline for one in having if one.timeline is not None])) is not None:
        drawn.shows = "some_windows"
    return drawn


def _has(window: RunAnalysis, finding: Finding) -> bool:
    return any(
        (one.code, one.rank, one.ranks) == (finding.code, finding.rank, finding.ranks) and one.ms
        for one in window.findings
    )


def _most_typical(timelines: Sequence[StepTimeline]) -> StepTimeline | None:
    """Return the windows' step that is nearest the median of theirs; the earliest of several."""
    if not timelines:
        return None
    middle = statistics.median(one.median_ms for one in timelines)
    return min(timelines, key=lambda one: abs(one.step_ms - middle))


def _replay(replays: Sequence[Replay]) -> Replay:
    traced = statistics.fmean(one.traced_ms for one in replays)
    replayed = statistics.fmean(one.replayed_ms for one in replays)
    return Replay(
        traced_ms=traced,
        replayed_ms=replayed,
        error=replayed / traced - 1 if traced else 0.0,
        unexplained_ms=statistics.fmean(one.unexplained_ms for one in replays),
        faithful=all(one.faithful for one in replays),
        assumptions=with_ranges(text for one in replays for text in one.assumptions),
    )


def _as_run(windows: Sequence[AsRun]) -> AsRun | None:
    """Return the step as run over all windows, with their intervals and what they differ by."""
    known = [one for one in windows if one.step_ms is not None]
    whole = [one for one in known if one.ranks] or known
    if not whole:
        return windows[-1] if windows else None
    step = mean_interval([_bounds(one) for one in whole])
    scales = [one.scale for one in whole if one.scale is not None]
    spent = [one.recording_ms for one in whole if one.recording_ms is not None]
    contradicted = [one for one in whole if one.contradicts is not None]
    against = min(contradicted, key=lambda one: one.nearly_allowed, default=None)  # the one that is far off, if any
    # what contradicts one window is what was told of that one
    told = [one.untraced_ms for one in ([against] if against is not None else whole) if one.untraced_ms is not None]
    return AsRun(
        step_ms=step.value,
        low_ms=step.low,
        high_ms=step.high,
        source=statistics.mode(one.source for one in whole),
        reason=next((one.reason for one in whole if one.reason is not None), None),
        untraced_ms=_mean(told),
        untraced_by=next((one.untraced_by for one in whole if one.untraced_by is not None), None),
        own_untraced_ms=_mean([one.own_untraced_ms for one in whole if one.own_untraced_ms is not None]),
        contradicts=against.contradicts if against is not None else None,
        contradicted_ms=against.contradicted_ms if against is not None else None,
        without_recording_ms=against.without_recording_ms if against is not None else None,
        allows_from_ms=against.allows_from_ms if against is not None else None,
        allows_to_ms=against.allows_to_ms if against is not None else None,
        scale=_mean(scales),
        recording_ms=_mean(spent),
        slowed_ms=statistics.fmean(one.slowed_ms for one in whole),
        steps=sum(one.steps for one in whole),
        step_numbers=[number for one in whole for number in one.step_numbers],
        ranks=_splits(whole),
        kinds=mean_kinds([(one.kinds, one.steps) for one in whole if one.kinds]),
    )


def _bounds(one: AsRun) -> Interval:
    value = one.step_ms or 0.0
    return Interval(value, value if one.low_ms is None else one.low_ms, value if one.high_ms is None else one.high_ms)


def _mean(intervals: Sequence[Interval]) -> Interval | None:
    return mean_interval(intervals) if intervals else None


def _splits(windows: Sequence[AsRun]) -> list[Split]:
    by_rank: dict[int, list[Split]] = {}
    for one in windows:
        for split in one.ranks:
            by_rank.setdefault(split.rank, []).append(split)
    return [
        Split(
            rank=rank,
            window_ms=sum(one.window_ms for one in own),
            **{f"{part}_ms": sum(one.part_ms(part) for one in own) for part in PARTS},
        )
        for rank, own in sorted(by_rank.items())
    ]
