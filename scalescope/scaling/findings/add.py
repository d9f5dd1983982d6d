"""Adds replays and findings to analyses: of a run, of plain traces, of a study's largest run of each job."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from scalescope.hardware.peaks import find_peak
from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.rows import TrainFacts
from scalescope.scaling.answer import AsRun, RunAnalysis
from scalescope.scaling.as_run.replays import Replays
from scalescope.scaling.as_run.step import (
    add_contradiction,
    find_contradiction,
    impossible_step,
    mark_unsteady,
    spread_ms,
    step_as_run,
    take_recording_out,
    untraced_alone,
)
from scalescope.scaling.as_run.untraced import another_of_its_own, untraced_of_run, untraced_of_traces
from scalescope.scaling.as_run.untraced_step import Untraced
from scalescope.scaling.costs.points import Launch
from scalescope.scaling.evidence.host_cause import HostCause, of_ranks
from scalescope.scaling.finding.finding import Finding, Reason
from scalescope.scaling.findings.bounds.of_steps import with_bounds
from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.findings.computing.nothing import nothing
from scalescope.scaling.findings.cores import CoreShare, core_share
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.findings.find import find
from scalescope.scaling.findings.measured import with_loading_now_and_then, with_most_ranks
from scalescope.scaling.findings.of_rows.shown_step import shown_step
from scalescope.scaling.findings.shares import mean_step_ms
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.replay.load import Target, find_targets, open_replayer
from scalescope.scaling.replay.ranks.ending_together import ending_together
from scalescope.scaling.replay.whatif.replayer import Replayer
from scalescope.scaling.timelines.one_step import Ready, step_timeline
from scalescope.scaling.trace.kernel_names import short_name

#: From this share of the step on, compute is all there is to it, on a device that waits for no other.
_ALL_COMPUTE = 0.95


def is_looked_at(analysis: RunAnalysis) -> bool:
    """Tell whether a run was one to price findings of: a study's largest of each job."""
    return analysis.replay is not None or analysis.unpriced is not None


@contextmanager
def _no_collector() -> Iterator[None]:
    """Keep Python from looking through all of a replay's objects for circular garbage, again and again: 8% of the time
    of four ranks.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_no_collector()
def add_findings(
    path: Path,
    analyses: Sequence[RunAnalysis],
    sweeps: Sequence[Launch],
    records: Mapping[int, RankRecord] | None = None,
    jobs: int | None = None,
    untraced: Untraced | None = None,
    host: Sequence[HostCause] | None = None,
    ready: Ready | None = None,
) -> None:
    """Fill in `replay`, `as_run`, `findings` and `timeline` of what is replayed at a path: a run, or a study's runs.

    `sweeps` are other than the study's own. `records`: of a run's own traces, where they are known already.
    `jobs`: processes that work out what changes do; None: as many as pay off. `untraced`: the step as the user knows it
    from elsewhere; None: as the run's own steps say. `host`: what a run's own records say of its hosts. `ready`: when
    its collectives' data can be there (see `timelines.one_step`).
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
            own = target.path == path
            _add(target, analysis, sweeps, records if own else None, jobs, untraced, host if own else None,
                 ready if own else None)  # fmt: skip
            if (
                told := with_bounds(analysis, (records if own else None) or {}, (host if own else None) or ())
            ) is not None:
                keep(analysis, told)


def _add(
    target: Target,
    analysis: RunAnalysis,
    sweeps: Sequence[Launch],
    records: Mapping[int, RankRecord] | None,
    jobs: int | None,
    untraced: Untraced | None,
    host: Sequence[HostCause] | None,
    ready: Ready | None,
) -> None:
    if unsound := sorted(set(records or ()) - {one.rank for one in analysis.ranks}):
        # a rank that lacks what ran would make the others' work their own
        files = f"the trace of rank {', '.join(map(str, unsound))} is not whole"
        analysis.unpriced = Reason("not_replayed", f"the step is not replayed: {files}")
        _tell_untraced(analysis, untraced)
        return
    if cut := sorted(rank for rank, one in (records or {}).items() if one.cut_communication):
        ranks = f"rank{'s' * (len(cut) > 1)} {', '.join(map(str, cut))}"
        analysis.unpriced = Reason(
            "unsplit", f"the step is not replayed: the trace of {ranks} is cut off before what its collectives did"
        )
        _tell_untraced(analysis, untraced)
        return
    if analysis.unpriced is not None and analysis.unpriced.code in ("lost", "other_steps"):
        _tell_untraced(analysis, untraced)
        return
    try:
        replayer = open_replayer(target, analysis, sweeps, records, jobs)
    except UserError as error:
        analysis.unpriced = Reason("not_replayed", f"the step is not replayed: {error}")
        _tell_untraced(analysis, untraced)
        return
    analysis.replay = replayer.replay
    replays: list[Replays] = []  # of the step without recording, whichever untraced one it is held against
    untraced_own = untraced or untraced_of_run(target.path)
    if untraced_own is not None and untraced_own.source == "steps":
        untraced_own = msgspec.structs.replace(untraced_own, once=analysis.once)
    analysis.as_run = take_recording_out(replayer, untraced_own, host or (), replays)
    find_contradiction(analysis, _off_ms(analysis, replayer))
    if (told := analysis.as_run) is not None and told.contradicts is not None and told.untraced_by == "given":
        # where the traces end on the other side, a step tells that they contradict there
        replayer.put_back()
        told = _bounded(told, analysis, replayer, host or (), replays)
        # and nothing is to rest on it: the step as run is what it is without
        replayer = open_replayer(target, analysis, sweeps, records, jobs)
        own = take_recording_out(replayer, untraced_of_run(target.path), host or (), replays) or AsRun(
            step_ms=None, source="given", reason="not_replayed"
        )
        own.untraced_ms, own.untraced_by, own.contradicts = told.untraced_ms, told.untraced_by, told.contradicts
        own.contradicted_ms, own.without_recording_ms = told.contradicted_ms, told.without_recording_ms
        own.allows_from_ms, own.allows_to_ms = told.allows_from_ms, told.allows_to_ms
        analysis.as_run = own
    if analysis.as_run is not None and untraced is not None:
        itself = _steps_of(target.path, analysis) or untraced_of_traces(replayer.records)
        analysis.as_run.own_untraced_ms = another_of_its_own(untraced, itself)
    mark_unsteady(analysis)
    folder = RunFolder(target.path)
    findings = find_in(replayer, analysis, folder.read_facts(), host, _cores(folder))
    if findings is not None:
        measured = analysis.findings
        if not analysis.pipelines:  # whose stages wait by their schedule
            findings = with_most_ranks(findings, measured, len(analysis.ranks))
        keep(analysis, with_loading_now_and_then(findings, measured))
    analysis.timeline = step_timeline(analysis, replayer.records, ready, shown_step(analysis))


def _off_ms(analysis: RunAnalysis, replayer: Replayer) -> float:
    """Return by how much the job's steps may be off its few profiled ones, ms: by what those differ by.

    The job's own steps may be by what as many in a row of them differ from all, too.
    """
    own, times = spread_ms(replayer, analysis.once), analysis.step_times
    if analysis.as_run is None or analysis.as_run.untraced_by != "steps" or times is None:
        return own
    return max(own, times.placebo_ms or 0.0)


def _steps_of(path: Path, analysis: RunAnalysis) -> Untraced | None:
    """Return the untraced step near the window of a run's that an answer is of, by its own rows."""
    return untraced_of_run(path, sorted({step.step for step in analysis.steps}))


def _bounded(
    told: AsRun, analysis: RunAnalysis, replayer: Replayer, host: Sequence[HostCause], replays: list[Replays]
) -> AsRun:
    """Return a step that traces contradict on one side with where they end on both, whichever side it is."""
    too_short = told.contradicts == "too_short"
    analysis.as_run = take_recording_out(
        replayer, impossible_step("too_long" if too_short else "too_short"), host, replays
    )
    find_contradiction(analysis, _off_ms(analysis, replayer))
    beyond = analysis.as_run
    if beyond is None or beyond.contradicts is None or beyond.contradicts == told.contradicts:
        return told
    if too_short:
        return msgspec.structs.replace(told, allows_to_ms=beyond.allows_to_ms)
    return msgspec.structs.replace(told, allows_from_ms=beyond.allows_from_ms)


def _cores(folder: RunFolder) -> CoreShare | None:
    try:
        return core_share(folder.read_info())
    except (OSError, UserError, msgspec.DecodeError):
        return None  # plain traces; what is damaged, the analysis says itself


def _tell_untraced(analysis: RunAnalysis, untraced: Untraced | None) -> None:
    """Keep the step that the user gives of what is not replayed, with what the traces have against it."""
    analysis.as_run = untraced_alone(untraced)
    add_contradiction(analysis)


def find_in(
    replayer: Replayer,
    analysis: RunAnalysis,
    facts: TrainFacts | None = None,
    host: Sequence[HostCause] | None = None,
    cores: CoreShare | None = None,
) -> list[Finding] | None:
    """Return a replayed run's findings; None where the replay can price none, for the reason in `unpriced`."""
    replay = replayer.replay
    host = of_ranks(host, replayer.graph.ranks) if host is not None else None
    if replayer.stalled is not None:
        analysis.unpriced = Reason("stalled", f"nothing is predicted: {replayer.stalled}")
        return None
    if unknown := ending_together(replayer.graph, replayer.side_by_side):
        names = [short_name(name) for name in sorted(unknown, key=lambda name: -unknown[name])]
        analysis.quality.unknown_collectives = names
        why = f"{names[0]} ends on all ranks at once, whenever it begins, as communication does; it is taken as compute"
        analysis.unpriced = Reason("unknown_collectives", f"nothing is predicted: {why}")
        return None
    if not replayer.is_good_for(near=True):
        apart = f"{abs(100 * replay.error):.1f}% {'longer' if replay.error > 0 else 'shorter'}"
        off = (
            f"what changes would bring is not told: put together again from its parts, the step comes out {apart} than "
            "it was, so what it would be without one of them is not known well enough"
        )
        analysis.unpriced = Reason("unfaithful", off)
        whole = Scene(analysis, replayer, facts, None, mean_step_ms(analysis, "window"), host, cores)
        quality = analysis.quality
        lacking = quality.lossy_ranks or quality.incomplete_ranks or quality.several_devices
        alone = analysis.world_size == 1 and analysis.activity == "gpu" and not lacking
        # without a replay either: there is next to nothing that anything could give back
        return [nothing(whole)] if alone and whole.share_ms("compute") >= _ALL_COMPUTE * whole.step_ms else None
    peak = find_peak(analysis.device) if analysis.device else None
    step, _ = step_as_run(analysis)
    if analysis.as_run is not None and analysis.as_run.ranks:
        replayer.longest_ns = step.high * 1e6
    scene = Scene(analysis, replayer, facts, peak, step.value, host, cores)
    found = find(scene)
    if scene.may_wait_unseen and all(one.code == "nothing" for one in found):
        unsplit = f"{scene.share_ms('exposed_unsplit'):.2g} ms a step of communication"
        why = f"whether ranks wait for one is not known: {unsplit} cannot be split into wait and transfer"
        analysis.unpriced = Reason("unsplit", why)
        return None
    # what is lost of the only rank can cost no more than what is left of a step that is nearly all compute
    all_compute = analysis.world_size == 1 and scene.share_ms("compute") >= _ALL_COMPUTE * scene.step_ms
    if analysis.quality.lossy_ranks and not all_compute and all(one.code == "nothing" for one in found):
        lossy = ", ".join(map(str, analysis.quality.lossy_ranks))
        why = f"the profiler lost activity of rank {lossy}, and what costs the step may be among it"
        analysis.unpriced = Reason("lost", f"{_none_found(analysis)}: {why}")
        return None
    if analysis.quality.incomplete_ranks and all(one.code == "nothing" for one in found):
        some = ", ".join(map(str, analysis.quality.incomplete_ranks))
        why = f"the trace of rank {some} is not complete, and what costs the step may be among what it lacks"
        analysis.unpriced = Reason("lost", f"{_none_found(analysis)}: {why}")
        return None
    if analysis.quality.several_devices and all(one.code == "nothing" for one in found):
        why = "one process drives several devices, which are taken as one: what each of them waits for is not told"
        analysis.unpriced = Reason("several_devices", f"no cause is found: {why}")
        return None
    return found


def _none_found(analysis: RunAnalysis) -> str:
    """Return that no cause is found, beside those that the steps tell by themselves."""
    return "no further cause is found" if analysis.findings else "no cause is found"
