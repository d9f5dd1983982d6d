"""The profiled windows of a run, explained: each with its mean step as run, by part and kernel kind."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.rows import StepRow
from scalescope.records.statistics import NORMAL_95
from scalescope.scaling.answer import AsRun, RunAnalysis
from scalescope.scaling.answer_rows import PARTS, Collective, KindRow
from scalescope.scaling.answer_steps import OnceSteps
from scalescope.scaling.as_run.step import step_as_run, take_recording_out
from scalescope.scaling.as_run.untraced import untraced_of_traces
from scalescope.scaling.as_run.untraced_step import Untraced
from scalescope.scaling.compare.measurement import Identity, Vector, Window, as_keys
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.rank.kernels import CARRIED, KernelTable
from scalescope.scaling.rank.partition import Partition
from scalescope.scaling.replay.load import Target, open_replayer
from scalescope.scaling.run import explain_traces
from scalescope.scaling.trace.kernel_kinds import KINDS
from scalescope.scaling.trace.sources import Source, find_windows
from scalescope.scaling.verdicts.step_rows.doubt import told_numbers
from scalescope.scaling.verdicts.step_rows.in_window import once_steps
from scalescope.scaling.verdicts.step_rows.steady import add_steps
from scalescope.scaling.windows.kinds import by_kind


class Profiled(msgspec.Struct, frozen=True):
    """What the traces of one run say."""

    windows: list[Window]
    identity: Identity
    bus_gb_s: dict[int, float]
    untraced_ms: list[float]  # steps before the window, where the traces tell them: their median
    untraced_off_ms: float  # by how much that may be off, as a standard deviation
    notes: list[str]


def read_windows(
    path: Path, untraced: Untraced | None, jobs: int | None = None, rows: Sequence[StepRow] = ()
) -> Profiled | None:
    """Explain every window at a path; None where its traces say nothing that can be compared.

    `untraced`: a step without a profiler, as the run's own `rows` tell. Raises UserError where there are no traces.
    """
    found = [_explain(path, sources, untraced, jobs, rows) for sources in find_windows(path)]
    usable, of_longer = _usual(path, [(explained, window) for explained, window in found if window is not None])
    if not usable:
        return None
    first = usable[0][0]
    notes = [*of_longer, *(note for explained, _ in usable for note in _notes(explained.analysis))]
    header = untraced_of_traces(first.records)
    told = [header.step_ms.value] if header is not None else []
    off = header.step_ms.half / NORMAL_95 if header is not None else 0.0
    identity = identity_of(first)
    return Profiled([window for _, window in usable], identity, _bus([one for one, _ in usable]), told, off, notes)


def _usual(
    path: Path, found: Sequence[tuple[Explained, Window]]
) -> tuple[Sequence[tuple[Explained, Window]], list[str]]:
    """Return the windows at the usual level, and a remark on those of steps that had become longer, if there are any.

    A mean of both would be of neither: how long a step is, is told by steps before any window. Where a run has windows
    of longer steps alone, they are what there is.
    """
    chosen, usual, longer = by_kind(path, [explained for explained, _ in found])
    if longer is None:
        return found, []
    told = (
        f"since step {longer.since} its steps took {longer.step_ms:.1f} ms, where {longer.level_ms:.1f} were usual: "
        f"the {len(chosen)} window(s) of them"
    )
    if not usual:
        return found, [f"{path.resolve().name}: {told} are all that it has, and its parts are those of longer steps"]
    kept = [one for one in found if any(one[0] is explained for explained in usual)]
    return kept, [f"{path.resolve().name}: {told} are left out; scalescope analyze tells what happened"]


def _explain(
    path: Path, sources: Sequence[Source], untraced: Untraced | None, jobs: int | None, rows: Sequence[StepRow]
) -> tuple[Explained, Window | None]:
    explained = explain_traces(sources, path.resolve().name, jobs, for_replay=True)
    analysis = explained.analysis
    if analysis.quality.verdict == "unusable" or not any(explained.partitions.values()):
        return explained, None
    _refuse_broken(path, sources, explained)
    if rows:
        add_steps(analysis, rows)
        analysis.once = once_steps(analysis)
    as_run = _as_run(path, explained, untraced)
    ranks, basis = analysis.ranks, "profiled"
    if as_run is not None and as_run.ranks:
        analysis.as_run = as_run
        basis = "as_run"
    whole = {rank: bounded(explained, rank) for rank in explained.partitions}
    if basis == "as_run":
        _, splits = step_as_run(analysis)
        means = {one.rank: tuple(one.part_ms(part) for part in PARTS) for one in splits}
    else:
        means = {
            rank: tuple(sum(column) / len(steps) for column in zip(*(_parts(step) for step in steps), strict=True))
            for rank, steps in whole.items()
            if steps and rank in {one.rank for one in ranks}
        }
    means = {rank: parts for rank, parts in means.items() if rank in explained.kernels}  # whose traces are whole
    if analysis.once is not None:
        means = {
            rank: _without_once(rank, parts, analysis.once, told_numbers(analysis)) for rank, parts in means.items()
        }
    kinds = {rank: kind_shares([explained.kernels[rank]]) for rank in means}
    if basis == "as_run" and as_run is not None:
        computed = {
            rank: table.total_ns / table.steps / 1e6 for rank, table in explained.kernels.items() if table.steps
        }
        kinds = _without_recording(kinds, as_run.kinds, computed)
    window = Window(
        ranks={rank: as_keys(parts, kinds[rank]) for rank, parts in means.items()},
        steps={rank: _usual_steps(rank, whole[rank], analysis) for rank in means},
        basis="as_run" if basis == "as_run" else "profiled",
        only=next(((one.first, one.last) for one in analysis.quality.common_steps), None),
        traces={source.rank if source.rank is not None else at: source for at, source in enumerate(sources)},
        calls={rank: kind_counts(explained.kernels[rank]) for rank in means},
        call_bounds={rank: kind_bounds(explained.kernels[rank]) for rank in means},
        has_placed=any(table.placed for table in explained.kernels.values()),
    )
    return explained, window


def _without_once(rank: int, parts: Vector, once: OnceSteps, told: Sequence[int]) -> Vector:
    """Return a rank's mean step without what came once among these: on its rank that, and on the others the waits for
    it, in the next step.
    """
    own = once.rank in (rank, None)
    lost_ms = once.longer_ms(told if own else [step - 1 for step in told])
    name = once.part if own else "exposed_wait"
    return tuple(max(0.0, ms - lost_ms) if part == name else ms for part, ms in zip(PARTS, parts, strict=True))


def _usual_steps(rank: int, steps: Sequence[Partition], analysis: RunAnalysis) -> list[Vector]:
    """Return a rank's steps by PARTS, without those that came once and those in which others wait for them."""
    once = analysis.once
    numbers = [one.step for one in analysis.steps if one.rank == rank][: len(steps)]
    odd = set() if once is None else {*once.steps, *(step + 1 for step in once.steps)}
    kept = [_parts(step) for number, step in zip(numbers, steps, strict=False) if number not in odd]
    return kept if len(kept) > 1 and len(numbers) == len(steps) else [_parts(step) for step in steps]


def _refuse_broken(path: Path, sources: Sequence[Source], explained: Explained) -> None:
    """Raise UserError where ranks are missing because their files are broken. A stranger's file beside them is none."""
    quality = explained.analysis.quality
    whole = len(explained.kernels) - len(quality.cut_ranks)
    promised = sum(source.looks_like_a_trace for source in sources)
    read = len(explained.kernels) + len(quality.left_out_ranks)
    if quality.missing_ranks and len(sources) > read:
        promised = max(promised, len(sources))  # a file whose name tells nothing may be what is missing
    promised = max(promised, read)
    if whole < promised:
        raise UserError(f"{path}: of {promised} ranks' traces only {whole} are whole, so its "
                        "steps compare with nothing; give whole ones, or record again")  # fmt: skip


def _as_run(path: Path, explained: Explained, untraced: Untraced | None) -> AsRun | None:
    """Return the window's step as run; None where it cannot be replayed."""
    if not explained.records:
        return None
    target = Target(path, explained.analysis.name)
    try:
        return take_recording_out(
            open_replayer(target, explained.analysis, (), explained.records, 1), untraced, explained.host
        )
    except UserError:
        return None


def bounded(explained: Explained, rank: int) -> Sequence[Partition]:
    """Return a rank's steps without the last one, where nothing bounds it and there are others."""
    steps = explained.partitions[rank]
    open_ended = any(step.open_ended for step in explained.analysis.steps if step.rank == rank)
    return steps[:-1] if open_ended and len(steps) > 1 else steps


def _parts(step: Partition) -> Vector:
    return tuple(ns / 1e6 for ns in step.parts)


def kind_shares(tables: Sequence[KernelTable]) -> Vector:
    """Return each kernel kind's share of the compute, in the order of KINDS."""
    time: dict[str, int] = {}
    for table in tables:
        for key, kernel in table.items():
            kind = table.kind(key)
            time[kind] = time.get(kind, 0) + kernel.total_ns
    whole = sum(time.values())
    return tuple(time.get(kind, 0) / whole if whole else float(kind == KINDS[-1]) for kind in KINDS)


def _without_recording(
    profiled: Mapping[int, Vector], told: Sequence[KindRow], profiled_ms: Mapping[int, float]
) -> dict[int, Vector]:
    """Return each rank's shares of kinds as they are without recording, which costs those most that are called most.

    `told`: the mean rank's compute without it, on CPUs; none, where it is not told by kind. `profiled_ms`: a step's
    compute with it, by rank.
    """
    computed = {row.kind: row.ms for row in told if row.share_of_compute is not None}
    if not sum(computed.values()) or not profiled:
        return dict(profiled)
    # of ranks that compute for unlike times the mean's shares are not the mean of theirs
    ms = [[share * profiled_ms.get(rank, 0.0) for share in shares] for rank, shares in profiled.items()]
    mean = [sum(of_kind) / len(profiled) for of_kind in zip(*ms, strict=True)]
    left = [computed.get(kind, 0.0) / before if before else 0.0 for kind, before in zip(KINDS, mean, strict=True)]
    weighed = {rank: [share * kept for share, kept in zip(own, left, strict=True)] for rank, own in profiled.items()}
    return {
        rank: tuple(share / sum(own) for share in own) if sum(own) else profiled[rank] for rank, own in weighed.items()
    }


def kind_counts(table: KernelTable) -> tuple[int | None, ...]:
    """Return how many kernels of each kind a step launches, in the order of KINDS; None where steps differ."""
    return tuple(least if least == most else None for least, most in kind_bounds(table))


def kind_bounds(table: KernelTable) -> tuple[tuple[int, int], ...]:
    """Return how many kernels of each kind every step launches, and how many any may, in the order of KINDS."""
    counts = dict.fromkeys(KINDS, (0, 0))
    for key, kernel in table.items():
        if key[0] != CARRIED:
            least, most = counts[table.kind(key)]
            counts[table.kind(key)] = least + (kernel.steps == table.steps), most + 1
    return tuple(counts[kind] for kind in KINDS)


def identity_of(explained: Explained) -> Identity:
    """Return what a run's traces tell of what it does."""
    analysis = explained.analysis
    tables = list(explained.kernels.values())
    shares = dict(zip(KINDS, kind_shares(tables), strict=True))
    return Identity(
        world_size=analysis.world_size,
        activity=analysis.activity,
        device=analysis.device,
        model=analysis.model,
        named_by_user=analysis.origin == "script",
        kinds={kind: share for kind, share in shares.items() if share},
        names=_names(tables),
        collectives=_usual_step(analysis, len),
        sent_bytes=_usual_step(analysis, _bytes_of),
        inputs=_inputs([one.multiplied for one in explained.records.values()]),
        calls=_calls([one.multiplied for one in explained.records.values()], [one.steps for one in analysis.ranks]),
    )


def _inputs(ranks: Sequence[Mapping[str, tuple[int, int]]]) -> dict[str, float]:
    """Return what a call of each operator multiplies on the rank with the least, in elements, where shapes tell."""
    names = set.intersection(*map(set, ranks)) if ranks else set()
    return {name: min(elements / calls for calls, elements in (own[name] for own in ranks)) for name in sorted(names)}


def _calls(ranks: Sequence[Mapping[str, tuple[int, int]]], steps: Sequence[int]) -> dict[str, float]:
    """Return how often a step calls each operator that multiplies, on the rank with the least, where shapes tell."""
    names = set.intersection(*map(set, ranks)) if ranks and min(steps, default=0) > 0 else set()
    return {name: min(own[name][0] for own in ranks) / min(steps) for name in sorted(names)}


def _names(tables: Sequence[KernelTable]) -> dict[str, float]:
    time: dict[str, int] = {}
    for table in tables:
        for (name, _), kernel in table.items():
            if name != CARRIED:
                time[name] = time.get(name, 0) + kernel.total_ns
    whole = sum(time.values()) or 1
    return {name: ns / whole for name, ns in time.items()}


def _usual_step(analysis: RunAnalysis, amount: Callable[[Sequence[Collective]], int | None]) -> dict[str, int | None]:
    """Return by operation what its collectives come to in a step; None where no more than half of the steps agree."""
    steps: dict[int, dict[str, list[Collective]]] = {}
    for one in analysis.collectives:
        if one.step is not None:
            steps.setdefault(one.step, {}).setdefault(one.operation, []).append(one)
    found: dict[str, int | None] = {}
    for operation in sorted({name for own in steps.values() for name in own}):
        usual, times = Counter(amount(own.get(operation, [])) for own in steps.values()).most_common(1)[0]
        found[operation] = usual if 2 * times > len(steps) else None
    return found


def _bytes_of(collectives: Sequence[Collective]) -> int | None:
    told = [one.bytes for one in collectives if one.bytes is not None]
    return sum(told) if len(told) == len(collectives) else None


def _bus(found: Sequence[Explained]) -> dict[int, float]:
    rates: dict[int, list[float]] = {}
    for explained in found:
        for one in explained.analysis.collectives:
            if one.bytes and one.bus_gb_s is not None:
                rates.setdefault(one.bytes, []).append(one.bus_gb_s)
    return {size: median(of_size) for size, of_size in sorted(rates.items())}


def _notes(analysis: RunAnalysis) -> list[str]:
    told = [] if analysis.once is None else [_came_once(analysis.name, analysis.once)]
    if analysis.quality.verdict == "good":
        return told
    return [*told, *(f"{analysis.name}: its traces are {analysis.quality.verdict}: {reason}"
            for reason in analysis.quality.reasons[:1])]  # fmt: skip


def _came_once(name: str, once: OnceSteps) -> str:
    """Return which steps are in no part of a run's step, since they came once."""
    which = f"step {once.steps[0]}" if len(once.steps) == 1 else f"steps {once.steps[0]} to {once.steps[-1]}"
    whose = f" on rank {once.rank}" if once.rank is not None else ""
    each = " each" if len(once.steps) > 1 else ""
    whole = once.of + once.others
    return (
        f"{name}: {which} took {once.each_ms:.1f} ms longer{each}{whose}, once in {whole} steps: "
        "that is in no part, nor do so few steps tell how often it comes"
    )
