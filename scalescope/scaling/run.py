"""One run's traces, explained: found, read, joined, with what its folder says beside them."""

import statistics
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.rows import RunInfo, TrainFacts
from scalescope.records.steps.recording import RecordingFacts
from scalescope.scaling.answer import Quality, RunAnalysis, SlowedSteps
from scalescope.scaling.findings.cores import bound_cores, core_share
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.join.job import LARGEST_WORLD
from scalescope.scaling.join.join import join
from scalescope.scaling.planned.fewer_recorded import fewer_recorded
from scalescope.scaling.planned.more_windows import more_windows
from scalescope.scaling.rank.records.record import MOST_RANKS
from scalescope.scaling.ranks.read import Ranks, read_jobs, read_ranks
from scalescope.scaling.trace.sources import Source, find_sources
from scalescope.scaling.verdicts.flight import read_flight
from scalescope.scaling.verdicts.step_rows.in_window import once_steps
from scalescope.scaling.verdicts.step_rows.steady import add_steps, rows_of_answer


def explain_traces(
    sources: Sequence[Source],
    name: str,
    jobs: int | None,
    executor: Executor | None = None,
    *,
    for_replay: bool = False,
) -> Explained:
    """Read the traces, one task a rank, and join them.

    `executor`: any concurrent.futures executor (MPIPoolExecutor for ranks on many nodes); None: processes of this
    machine where there is enough to read. `for_replay`: keep what a replay needs, where all ranks would be replayed. A
    file that is no trace is named in the answer's reasons. Raises UserError where none of them is one.
    """
    return _explain(read_ranks(sources, jobs, executor, for_replay=for_replay and len(sources) <= MOST_RANKS), name)


def explain_jobs(
    path: Path, jobs: int | None = None, executor: Executor | None = None, *, for_replay: bool = False
) -> list[Explained]:
    """Explain a folder of trace files that may be of several jobs, each for itself; `for_replay`: see `explain_traces`.

    Raises UserError where there are none.
    """
    sources = find_sources(path)
    found = read_jobs(sources, jobs, executor, for_replay=for_replay and len(sources) <= MOST_RANKS)
    if len(found) == 1:
        return [_explain(found[0], _name_of(path))]
    explained = []
    for number, ranks in enumerate(found, 1):
        windows = ranks.mixed is not None and ranks.mixed.kind == "windows"
        kind = "window" if windows else "job"
        one = _explain(ranks, f"{_name_of(path)}, {kind} {number} of {len(found)}")
        one.analysis.quality.mixed = ranks.mixed
        apart = "windows" if windows else "jobs"
        one.analysis.quality.reasons.insert(
            0, f"the folder holds the traces of {len(found)} {apart}; these are {', '.join(ranks.files)}"
        )
        explained.append(one)
    return explained


def _explain(ranks: Ranks, name: str) -> Explained:
    explained = msgspec.structs.replace(join(ranks.summaries, name), records=ranks.records)
    quality = explained.analysis.quality
    quality.reasons[:] = [*ranks.reasons, *quality.reasons, *ranks.asides]
    quality.common_steps = [ranks.common] if ranks.common is not None else []
    if ranks.quiet is not None:
        quality.slowed = SlowedSteps(
            steps=list(ranks.quiet.slowed),
            of=ranks.quiet.last - ranks.quiet.first + 1 + len(ranks.quiet.slowed),
            times=ranks.quiet.times,
            slowed_ms=ranks.quiet.slowed_ns / 1e6,
            quiet_ms=ranks.quiet.quiet_ns / 1e6,
        )
    broken = [one for one in ranks.refused if not one.stranger]
    if quality.verdict == "good" and broken:
        quality.verdict = "degraded"
    unread = {one.rank for one in broken if one.rank is not None and one.rank < LARGEST_WORLD} - ranks.summaries.keys()
    if unread:
        quality.left_out_ranks = sorted({*quality.left_out_ranks, *unread})
        explained.analysis.world_size = max(explained.analysis.world_size, quality.left_out_ranks[-1] + 1)
    return explained


def explain_run(
    run: RunFolder | Path, jobs: int | None = None, executor: Executor | None = None, *, for_replay: bool = False
) -> Explained:
    """Explain a run folder, a folder of trace files, or a trace file; `for_replay`: see `explain_traces`.

    A run folder without traces (the job ran with the profiler off) still has its steps. Raises UserError where there is
    neither.
    """
    path = run.path if isinstance(run, RunFolder) else run
    folder = RunFolder(path) if (path / "run.json").is_file() else None
    try:
        sources = find_sources(path)
    except UserError as error:
        if folder is None or not (folder.steps.is_file() or folder.flight_recorder.is_dir()):
            raise
        return explain_steps_only(folder, str(error))
    explained = explain_traces(sources, _name_of(path), jobs, executor, for_replay=for_replay)
    if folder is not None:
        add_run_folder(explained.analysis, folder)
    return explained


def explain_steps_only(folder: RunFolder, reason: str) -> Explained:
    """Return what a run folder without usable traces still says: its throughput."""
    info = folder.read_info()
    why = _UNPROFILED if _profiles_nothing(folder) else _ended_before_recording(folder)
    analysis = RunAnalysis(
        name=folder.path.name,
        world_size=info.world_size or 1,
        activity="cpu" if info.devices and info.devices[0].kind == "cpu" else "gpu",
        quality=Quality(verdict="unusable", reasons=[why or reason], unprofiled=why is not None),
    )
    add_run_folder(analysis, folder)
    return Explained(analysis, {}, {})


def _profiles_nothing(folder: RunFolder) -> bool:
    """Tell whether a job of ours was told to profile no step."""
    profiler = _settings(folder).get("profiler")
    return isinstance(profiler, dict) and profiler.get("enabled") is False


def _ended_before_recording(folder: RunFolder) -> str | None:
    """Return that a job's last step came before the first that is recorded, and what to do; None where none tells."""
    settings = _settings(folder)
    profiler = settings.get("profiler")
    if not isinstance(profiler, dict):
        return None
    wait, warmup = profiler.get("wait"), profiler.get("warmup")
    begun = settings.get("first_step", 0)
    if not (isinstance(wait, int) and isinstance(warmup, int) and isinstance(begun, int)):
        return None  # wait=null: the job's last steps, which its own end tells
    try:
        rows = folder.read_steps()
    except msgspec.DecodeError:
        return None
    first = begun + wait + warmup
    if not rows or rows[-1].step >= first:
        return None
    last = rows[-1].step
    told = f"no step was recorded, since the last step was {last} and step {first} is the first that is recorded"
    if wait + warmup <= _EARLIEST:
        return told
    earlier = "profile_steps(…, wait=2, warmup=1)" if "what" in settings else "profiler.wait=2 profiler.warmup=1"
    return f"{told} (earlier ones: {earlier})"


def _settings(folder: RunFolder) -> dict[str, Any]:
    """Return the keys of a job's frozen config; none where it is damaged, which tells nothing."""
    from scalescope.records.frozen import read_frozen  # loads YAML, which no other answer takes

    try:
        return read_frozen(folder.config)
    except (OSError, UserError):
        return {}


def _recording(folder: RunFolder) -> RecordingFacts | None:
    """Return what a job says of its recording; None where it is damaged: the rest is told without it, too."""
    try:
        return folder.read_recording()
    except (UserError, msgspec.DecodeError):
        return None


def add_run_folder(analysis: RunAnalysis, folder: RunFolder) -> None:
    """Add what a run folder says beside its traces. Raises UserError where its documents do not decode."""
    info = folder.read_info()
    facts = folder.read_facts()
    if facts is not None:
        analysis.model, analysis.strategy, analysis.origin = facts.model, facts.strategy, facts.origin
        analysis.compiled = facts.compiled
    if info.world_size:
        analysis.world_size = info.world_size
    if info.hosts:
        analysis.hosts = len(set(info.hosts))
    if info.devices:
        analysis.device = info.devices[0].name
    share = core_share(info)
    analysis.cores_full = share is not None and share.threads >= share.cores
    try:
        rows = folder.read_steps()
    except msgspec.DecodeError as error:
        analysis.quality.reasons.append(f"steps.jsonl: {error}")
        rows = []
    add_steps(analysis, rows_of_answer(analysis, rows))
    analysis.once = once_steps(analysis)
    settings = _settings(folder)
    analysis.fewer_recorded = fewer_recorded(analysis, settings, rows, _recording(folder))
    analysis.more_windows = more_windows(settings) if analysis.origin == "job" else None
    _add_samples(analysis, facts)
    _add_cores(analysis, info)
    _add_own_threads(analysis, folder)
    keep(analysis, analysis.findings)  # its steps may tell what no window met
    if analysis.throughput is not None and facts is not None:
        analysis.throughput.counts_batches = facts.counts_batches
        if facts.origin == "script" and not (facts.counts_batches or facts.samples_by_rank):
            analysis.throughput.told_a_rank = facts.samples_per_rank_step
    analysis.last_collectives, _ = read_flight(folder, info.world_size)


def _add_samples(analysis: RunAnalysis, facts: TrainFacts | None) -> None:
    """Add to the rank that comes late in all steps how many times the others' samples it has, where it has more."""
    times, told = analysis.step_times, facts.samples_by_rank if facts is not None else ()
    if times is None or times.late is None or len(told) != analysis.world_size or times.late.rank >= len(told):
        return
    others = [samples for rank, samples in enumerate(told) if rank != times.late.rank]
    if others and 0 < statistics.median_high(others) < told[times.late.rank]:
        more = told[times.late.rank] / statistics.median_high(others)
        times.late = msgspec.structs.replace(times.late, times_the_samples=more)


def _add_cores(analysis: RunAnalysis, info: RunInfo) -> None:
    """Add to what ranks wait for cores how many these are, how many threads compute on them, and what binds a rank."""
    times = analysis.step_times
    waits = times.core_waits if times is not None else None
    if times is None or waits is None:
        return
    share = core_share(info, waits.rank)
    bound = bound_cores(info, waits.rank) if waits.rank is not None else None
    if share is not None:
        times.core_waits = msgspec.structs.replace(waits, threads=share.threads, cores=share.cores, bound_cores=bound)


def _add_own_threads(analysis: RunAnalysis, folder: RunFolder) -> None:
    """Add the thread of a rank's own process that may have the cores, or the lock, that the rank waits for."""
    times, recording = analysis.step_times, _recording(folder)
    if recording is None:
        return
    analysis.busy_threads, analysis.worker_times = recording.threads, recording.workers
    analysis.child_times = recording.children
    waits = times.core_waits if times is not None else None
    if times is None or waits is None:
        return
    least = _MUCH_OF_IT * waits.ms / waits.mean_step_ms
    own = [one for one in recording.threads if waits.rank in (None, one.rank) and one.cores >= least]
    if own:
        busiest = max(own, key=lambda one: one.cores)
        times.core_waits = msgspec.structs.replace(waits, own_thread=busiest.name, own_thread_cores=busiest.cores)


#: A thread that uses so much of a core as a rank waits for one, or more, may be what the rank waits for.
_MUCH_OF_IT = 0.5
#: What folders of traces are called, whatever the job.
_OF_TRACES = frozenset({"tb", "trace", "traces", "log", "logs", "profile", "profiler"})
_UNPROFILED = "no step was profiled (profiler=none)"
_EARLIEST = 3  # the first step that wait=2, warmup=1 records


def _name_of(path: Path) -> str:
    """Return what a path's traces are called by: not by a name that any folder of traces has, but a run's own one."""
    resolved = path.resolve()
    while resolved.name.lower() in _OF_TRACES and resolved.parent.name and not (resolved / "run.json").is_file():
        resolved = resolved.parent
    return resolved.name
