"""From paths to measurements: run folders, studies, sweeps, trace folders, logs, or a folder that holds several."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder, find_runs
from scalescope.records.frozen import frozen_keys, read_frozen_text
from scalescope.records.outputs.sweep_logs import is_log
from scalescope.records.rows import RunInfo, StepRow
from scalescope.records.statistics import median_of_known
from scalescope.records.steps.core_waits import waited_ms
from scalescope.records.steps.recording import untraced_steps
from scalescope.scaling.as_run.untraced import untraced_of_run
from scalescope.scaling.compare.alike.samples import samples_of
from scalescope.scaling.compare.measurement import Identity, Measurement, Repeat
from scalescope.scaling.compare.windows import Profiled, read_windows
from scalescope.scaling.costs.points import Launch, read_launches
from scalescope.scaling.trace.sources import find_sources
from scalescope.scaling.trace.strangers.known import said_of_folder
from scalescope.scaling.trace.xla.read import XPLANE
from scalescope.scaling.verdicts.step_rows.steady import MeasuredSteps, measured_steps

#: So many steps are enough to tell the step.
_ENOUGH_STEPS = 10
#: So much of a log tells whose it is.
_HEAD_BYTES = 1 << 16
#: More repeats are not named one by one.
_MOST_NAMED = 3


def read_side(paths: Sequence[Path], jobs: int | None = None, *, whole: bool = False) -> list[Measurement]:
    """Return what one side holds: one measurement a job, of which several paths are repeats, and one of all sweeps.

    `whole`: paths are called by the folder that they lie in, too. Raises UserError where one holds nothing that can be
    compared.
    """
    given, paths = paths, _once(paths)
    repeats: list[Repeat] = []
    launches: list[Launch] = []
    infos: list[RunInfo] = []
    for path in paths:
        runs, sweeps = _things(path)
        if not runs and not sweeps:
            said = said_of_folder(path) if path.is_dir() else None
            raise UserError(said or f"{path} holds nothing to compare; give run folders, studies, sweeps, folders of "
                            "traces, logs of nccl-tests, or a folder that holds several of one kind")  # fmt: skip
        repeats += [read_repeat(run, jobs) for run in runs]
        for sweep in sweeps:
            launches += read_launches(sweep)
            infos += [run.read_info() for run in find_runs(sweep)] if sweep.is_dir() else []
    _refuse_ranks_apart(repeats)
    if repeats and len(paths) < len(given):
        note = "a folder that is given twice is no repeat: it counts once"
        repeats[0] = msgspec.structs.replace(repeats[0], notes=[note, *repeats[0].notes])
    name = _named([label_of(path, whole=whole) for path in paths])
    jobs_found: dict[tuple[str, ...], list[Repeat]] = {}
    for repeat in repeats:
        jobs_found.setdefault(repeat.series, []).append(repeat)
    found = [Measurement(name=_name(name, own, len(jobs_found)), repeats=own) for own in jobs_found.values()]
    return [*found, *([Measurement(name=name, launches=launches, infos=infos)] if launches else [])]


def _refuse_ranks_apart(repeats: Sequence[Repeat]) -> None:
    """Raise UserError where two runs of a job hold traces of different ranks alone: its ranks, and no repeats of it."""
    held = [(one, {rank for window in one.windows for rank in window.ranks}) for one in repeats if one.info is None]
    parts = [(one, ranks) for one, ranks in held if ranks and len(ranks) < one.identity.world_size]
    for at, (one, ranks) in enumerate(parts):
        for other, others in parts[:at]:
            if one.identity.world_size == other.identity.world_size and not ranks & others:
                raise UserError(f"{other.path} and {one.path} hold different ranks of {one.identity.world_size} "
                                f"({_listed(others)} and {_listed(ranks)}), which are no repeats of a run: put the "
                                "traces of a run's ranks into one folder, or name one folder a side")  # fmt: skip


def _listed(ranks: set[int]) -> str:
    return ", ".join(map(str, sorted(ranks)[:_MOST_NAMED])) + (" …" if len(ranks) > _MOST_NAMED else "")


def _once(paths: Sequence[Path]) -> list[Path]:
    """Return the paths without those that are there already: a run is no repeat of itself."""
    return list({path.resolve(): path for path in reversed(paths)}.values())[::-1]


def label_of(path: Path, *, whole: bool = False) -> str:
    """Return what a path is called: its name, and of a folder that every run has, whose it is."""
    full = path.resolve()
    by_parent = whole or full.name == "traces"
    return f"{full.parent.name}/{full.name}" if by_parent and full.parent.name else full.name


def _named(labels: Sequence[str]) -> str:
    """Return what a side is called: its repeats by name, of many the first."""
    return ", ".join(labels) if len(labels) <= _MOST_NAMED else f"{labels[0]} and {len(labels) - 1} more"


def _name(side: str, repeats: Sequence[Repeat], jobs: int) -> str:
    return side if jobs == 1 else f"{side}/{repeats[0].name}"


def _things(path: Path) -> tuple[list[Path], list[Path]]:
    """Return the runs (or folders of traces) and the sweeps at a path."""
    if path.is_file():
        return (
            ([], [path])
            if not path.name.endswith((".json", ".json.gz", XPLANE)) or _is_json_log(path)
            else ([path], [])
        )
    if not path.is_dir():
        raise UserError(f"{path}: there is no such folder or file")
    if (path / "run.json").is_file():
        return _of_run(RunFolder(path))
    try:
        find_sources(path)
    except UserError:
        pass
    else:
        return [path], []
    runs: list[Path] = []
    sweeps: list[Path] = []
    for below in sorted(one for one in path.iterdir() if one.is_dir() and not one.name.startswith(".")):
        own_runs, own_sweeps = _things(below)
        runs, sweeps = [*runs, *own_runs], [*sweeps, *own_sweeps]
    return runs, sweeps


def _is_json_log(path: Path) -> bool:
    """Tell whether a JSON file is a log of nccl-tests, and no trace."""
    if path.suffix != ".json":
        return False
    with path.open("rb") as file:
        return is_log(file.read(_HEAD_BYTES))


def _of_run(folder: RunFolder) -> tuple[list[Path], list[Path]]:
    kind = folder.read_info().kind
    if kind == "sweep":
        return [], [folder.path]
    if kind == "train":
        return [folder.path], []
    tried = {row.run for row in folder.read_tried()}
    children = [child for child in folder.read_children() if child.path.name not in tried]
    kinds = [(child, child.read_info()) for child in children]
    return (
        [child.path for child, info in kinds if info.kind == "train" and child.read_facts() is not None],
        [child.path for child, info in kinds if info.kind == "sweep" and child.sweep.exists()],
    )


def read_repeat(path: Path, jobs: int | None = None) -> Repeat:
    """Return one run: its steps, its windows as run, its surroundings. Raises UserError where it holds neither."""
    if not (path / "run.json").is_file():
        profiled = read_windows(path, None, jobs)
        if profiled is None:
            raise UserError(f"{path}: its traces hold too little to compare; see: scalescope analyze {path}")
        return Repeat(
            name=label_of(path),
            path=path,
            identity=profiled.identity,
            windows=profiled.windows,
            steady_ms=profiled.untraced_ms,
            steady_off_ms=profiled.untraced_off_ms,
            bus_gb_s=profiled.bus_gb_s,
            notes=profiled.notes,
        )
    folder = RunFolder.open(path)
    try:
        rows = folder.read_steps()
    except msgspec.DecodeError as error:
        raise UserError(f"{folder.steps}: {error}") from error
    _refuse_impossible(folder, rows)
    profiled, why = None, "has no traces"
    if _holds_any(folder.traces):
        try:
            profiled = read_windows(path, untraced_of_run(path), jobs, rows)
            why = "has traces that hold too little"
        except UserError as error:
            why = f"has traces that cannot be used ({str(error).removeprefix(f'{path}: ')})"
    return _of_folder(folder, rows, profiled, why)


def _holds_any(folder: Path) -> bool:
    """Tell whether there is anything in a folder."""
    return folder.is_dir() and any(folder.iterdir())


def _refuse_impossible(folder: RunFolder, rows: Sequence[StepRow]) -> None:
    """Raise UserError where a step took no time, or none that is a number: the file is not what the job wrote."""
    for row in rows:
        if any(not 0 < ms < math.inf for ms in row.step_ms):
            raise UserError(f"{folder.steps}: step {row.step} took {min(row.step_ms):g} ms, which no step does")


def _config_of(folder: RunFolder) -> tuple[str, list[str]]:
    """Return the frozen config's text, and why it is not compared where it is damaged."""
    if not folder.config.is_file():
        return "", []
    try:
        text = read_frozen_text(folder.config)
        frozen_keys(text)
    except UserError as error:
        return "", [
            f"{folder.path.name}: its settings are not compared, config.yaml is not what freezing wrote: {error}"
        ]
    return text, []


def _of_folder(folder: RunFolder, rows: Sequence[StepRow], profiled: Profiled | None, why: str) -> Repeat:
    """`why`: there is nothing of traces."""
    info, facts = folder.read_info(), folder.read_facts()
    on_cpu = bool(info.devices) and all(one.kind == "cpu" for one in info.devices)
    measured = measured_steps(rows)
    steady, chosen = steps_that_tell(rows, measured, lingers=not on_cpu)
    waiting = [row for row in rows if row.phase == "steady" and row.step_ms and row.synchronised]
    if not steady and profiled is None:
        raise UserError(f"{folder.path} has neither steady steps nor traces to compare")
    known = profiled.identity if profiled else Identity(world_size=1, activity="gpu", device=None)
    device = info.devices[0] if info.devices else None
    identity = msgspec.structs.replace(
        known,
        world_size=info.world_size or known.world_size,
        activity=known.activity if profiled or device is None else "cpu" if device.kind == "cpu" else "gpu",
        device=device.name if device else known.device,
        model=facts.model if facts else known.model,
        named_by_user=facts is not None and facts.origin == "script",
        samples_by_rank=samples_of(facts, info.world_size or known.world_size),
        counts_batches=facts is not None and facts.counts_batches,
    )
    config, damage = _config_of(folder)
    return Repeat(
        name=folder.path.name,
        path=folder.path,
        identity=identity,
        windows=profiled.windows if profiled else [],
        steady_ms=[row.length_ms for row in steady],
        every_ms={row.step: (row.length_ms, _free_of(row)) for row in measured.every},
        steady_steps={row.step: tuple(row.loop_ms) for row in waiting},
        recurring=measured.recurring if waiting else None,
        rare=measured.long if measured.long is not None and measured.long.is_rare else None,
        run_delay_ms=_run_delay(steady),
        free_ms=_free(steady),
        worker_cores=_worker_cores(folder) if on_cpu else None,
        late_ms=_lateness(steady) if on_cpu else {},
        recorded_run_delay_ms=_run_delay([row for row in rows if row.phase == "profile"]),
        info=info,
        facts=facts,
        config=config,
        tokens_per_s=median_of_known([row.tokens_per_s for row in steady]),
        samples_per_s=median_of_known([row.samples_per_s for row in steady]),
        memory_bytes=max((row.memory_peak_bytes for row in rows if row.memory_peak_bytes is not None), default=None),
        joules_per_sample=median_of_known([row.joules_per_sample for row in steady]),
        bus_gb_s=profiled.bus_gb_s if profiled else {},
        notes=[
            *_ended(folder.path.name, info, len(steady)),
            *(profiled.notes if profiled else [f"{folder.path.name} {why}: where its step goes is not known"]),
            *([f"{folder.path.name}: {chosen}"] if chosen else []),
            *damage,
        ],
    )


def _ended(name: str, info: RunInfo, steps: int) -> list[str]:
    """Say that a run has not come to its end, if so."""
    if info.status == "done":
        return []
    return [f"{name} has not come to its end (it is {info.status}): its {steps} steady steps are what there is of it"]


def steps_that_tell(rows: Sequence[StepRow], measured: MeasuredSteps, *, lingers: bool) -> tuple[list[StepRow], str]:
    """Return the steps of which the measured step is the median, and what is to be said of the choice ("": nothing).

    They are those of an analysis, as long as they were. `lingers`: what a profiler leaves behind may slow the steps
    after it; where these are longer, for no unevenness of those before, only those before count, if they are enough.
    """
    numbers = {row.step for row in measured.steady}
    steady = [row for row in rows if row.step in numbers and row.phase == "steady" and row.step_ms]
    recorded = [row.step for row in rows if row.phase == "profile"]
    before = [row for row in steady if recorded and row.step < recorded[0]]
    if not lingers or not _ENOUGH_STEPS <= len(before) < len(steady):
        return steady, ""
    clean = untraced_steps([row.length_ms for row in before], len(recorded))
    after = statistics.median(row.length_ms for row in steady[len(before) :])
    if clean is None or after <= clean.median_ms + clean.spread_ms:
        return steady, ""
    return before, (
        f"its step is that of the {len(before)} steps before a profiler was on: those after it take {after:.2f} ms for "
        f"{clean.median_ms:.2f}, as a profiler stays attached"
    )


def _run_delay(rows: Sequence[StepRow]) -> float | None:
    """Return how long the rank that waited most for a core did so, ms of the mean step."""
    told = [ms for row in rows if (ms := waited_ms(row)) is not None]
    return sum(told) / len(told) if told and len(told) == len(rows) else None


def _worker_cores(folder: RunFolder) -> float | None:
    """Return the cores that all ranks' loaders' workers used together; 0 where a run is known to have none, None where
    it noted none.
    """
    recording = folder.read_recording()
    if recording is None:
        return None
    if recording.workers:
        return sum(one.cores for one in recording.workers)
    return 0.0 if recording.no_workers else None


def _free(rows: Sequence[StepRow]) -> list[float]:
    """Return each step without what the rank that waited most waited for its core; none where one tells nothing."""
    told = [row.length_ms - ms for row in rows if (ms := waited_ms(row)) is not None]
    return told if len(told) == len(rows) and min(told, default=0.0) > 0 else []


def _free_of(row: StepRow) -> float | None:
    waited = waited_ms(row)
    return row.length_ms - waited if waited is not None and waited < row.length_ms else None


def _lateness(rows: Sequence[StepRow]) -> dict[int, list[float]]:
    """Return by rank how long after all others it is ready in each step, ms, but for what each waited for a core."""
    told = [row for row in rows if row.synchronised and len(row.own_ms) == len(row.own_run_delay_ms) > 1]
    found: dict[int, list[float]] = {}
    for row in told:
        own = [ms - max(0.0, delay) for ms, delay in zip(row.own_ms, row.own_run_delay_ms, strict=True)]
        for rank, ms in enumerate(own):
            found.setdefault(rank, []).append(ms - max(own[:rank] + own[rank + 1 :]))
    return {rank: late for rank, late in found.items() if len(late) == len(told) >= _ENOUGH_STEPS}
