"""Explains all windows of a run: each by its own traces, then together."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.scaling.answer_steps import LongerSteps
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.rank.records.record import MOST_ACTIVITIES
from scalescope.scaling.run import add_run_folder, explain_jobs, explain_run, explain_traces
from scalescope.scaling.trace.sources import Source, find_windows
from scalescope.scaling.windows.kinds import by_kind

#: Of more windows, so many are replayed, from the first to the last: each costs as much as a run. In all they hold no
#: more activities than one may.
MOST_REPLAYED = 4


def explain_windows(
    run: RunFolder | Path, jobs: int | None = None, executor: Executor | None = None, *, for_replay: bool = False
) -> Explained:
    """Explain a run folder, a folder of traces or a trace file, over all its windows; see `run.explain_run`."""
    path = run.path if isinstance(run, RunFolder) else run
    last = explain_run(path, jobs, executor, for_replay=for_replay)
    if last.analysis.quality.verdict == "unusable" and not last.partitions:
        return last
    pooled = _with_earlier(path, last, jobs, executor, for_replay)
    if (pooled is not last or pooled.analysis.longer is not None) and (path / "run.json").is_file():
        add_run_folder(pooled.analysis, RunFolder(path))
    return pooled


def explain_jobs_windows(
    path: Path, jobs: int | None = None, executor: Executor | None = None, *, for_replay: bool = False
) -> list[Explained]:
    """Explain a folder of trace files, over all windows where they are of one job; of several, the latest of each."""
    found = explain_jobs(path, jobs, executor, for_replay=for_replay)
    return found if len(found) > 1 else [_with_earlier(path, found[0], jobs, executor, for_replay)]


def _with_earlier(
    path: Path, last: Explained, jobs: int | None, executor: Executor | None, for_replay: bool
) -> Explained:
    """Return the last window's explanation pooled with those of the windows before it, where there are any."""
    windows = find_windows(path)
    if len(windows) < 2:
        return _by_kind(path, [last], lambda chosen: chosen[0])
    from scalescope.scaling.windows.pool import pool

    activities = sum(one.count for one in last.records.values()) or 1
    replayed = set(_spread(len(windows), min(MOST_REPLAYED, MOST_ACTIVITIES // activities)))
    found = [last]
    left_out = 0
    for at in range(len(windows) - 2, -1, -1):
        earlier = _explained(windows[at], last.analysis.name, jobs, executor, for_replay and at in replayed)
        if earlier is not None and _is_before(earlier, found[0]):
            found.insert(0, earlier)
        else:
            left_out += 1
    pooled = _by_kind(path, found, pool)
    if left_out:
        pooled.analysis.quality.reasons.append(
            f"{left_out} of {len(windows)} windows {_are(left_out)} left out: not all steps are before those of the "
            "latest"
        )
    return pooled


def _by_kind(path: Path, found: Sequence[Explained], pool: Callable[[Sequence[Explained]], Explained]) -> Explained:
    """Return windows pooled: those of steps that had become longer, with the others beside them, or all."""
    chosen, usual, longer = by_kind(path, found)
    pooled = pool(chosen)
    if longer is not None:
        pooled = msgspec.structs.replace(pooled, usual=pool(usual) if usual else None)
        pooled.analysis.longer = LongerSteps(
            since=longer.since, step_ms=longer.step_ms, level_ms=longer.level_ms, usual_windows=len(usual)
        )
        if others := len(found) - len(chosen) - len(usual):
            pooled.analysis.quality.reasons.append(
                f"{others} of {len(found)} windows {_are(others)} left out: neither of the steps that became longer "
                "last, nor at the level before"
            )
    return pooled


def _spread(windows: int, most: int) -> list[int]:
    """Return which windows are replayed: all of a few; of more, some from the first to the last; the last always."""
    if windows <= most:
        return list(range(windows))
    if most < 2:
        return [windows - 1]
    return sorted({round(at * (windows - 1) / (most - 1)) for at in range(most)})


def _explained(
    sources: Sequence[Source], name: str, jobs: int | None, executor: Executor | None, for_replay: bool
) -> Explained | None:
    try:
        return explain_traces(sources, name, jobs, executor, for_replay=for_replay)
    except UserError:
        return None  # of several jobs, or no traces: it is left out, which the answer says


def _is_before(one: Explained, other: Explained) -> bool:
    """Whether a window is one of the same run before another: the same ranks, and steps with lower numbers."""
    steps = [step.step for step in one.analysis.steps], [step.step for step in other.analysis.steps]
    same_ranks = one.partitions.keys() == other.partitions.keys()
    same_world = one.analysis.world_size == other.analysis.world_size
    return same_ranks and same_world and bool(steps[0] and steps[1]) and max(steps[0]) < min(steps[1])


def single(window: Explained) -> Explained:
    """Return a window as a run of its own, whose analysis may be filled in without touching the pooled one."""
    return msgspec.structs.replace(window, analysis=msgspec.structs.replace(window.analysis))


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
