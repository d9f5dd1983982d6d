"""One run's traces, explained: the ranks' summaries joined into a RunAnalysis."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Literal

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.scaling.answer import DevicesOfRank, Quality, RunAnalysis, StepSource
from scalescope.scaling.evidence.compare import compare_hosts
from scalescope.scaling.evidence.host_cause import HostCause
from scalescope.scaling.finding import Reason
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.findings.measured import measured_findings, with_loading
from scalescope.scaling.findings.shares import mean_step_ms
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.rank.exchanges import RankExchanges, rank_exchanges
from scalescope.scaling.rank.kernels import KernelTable
from scalescope.scaling.rank.partition import Partition, complete, total
from scalescope.scaling.rank.record import MOST_RANKS, RankRecord
from scalescope.scaling.ranks.clocks import host_offsets
from scalescope.scaling.ranks.matching import Match, match_collectives
from scalescope.scaling.ranks.quality import judge, lacks_its_device
from scalescope.scaling.ranks.read import Ranks, read_jobs, read_ranks
from scalescope.scaling.ranks.rows import collective_row, rank_split, step_split
from scalescope.scaling.ranks.summary import RankSummary
from scalescope.scaling.ranks.waits import wait_and_transfer, wait_of
from scalescope.scaling.trace.kernel_kinds import OPTIMISER, kind_of
from scalescope.scaling.trace.sources import Source, find_sources
from scalescope.scaling.verdicts.efficiency import efficiency_of
from scalescope.scaling.verdicts.experts import expert_rows
from scalescope.scaling.verdicts.flight import read_flight
from scalescope.scaling.verdicts.groups import group_rows
from scalescope.scaling.verdicts.kinds import kernel_kinds
from scalescope.scaling.verdicts.pipeline import pipeline_rows
from scalescope.scaling.verdicts.step_rows.steady import add_steps, rows_of_answer
from scalescope.scaling.verdicts.stragglers import AwaitedWaits, exposed_wait_by_rank, name_late_ranks
from scalescope.scaling.verdicts.top_kernels import top_kernels


class Explained(msgspec.Struct, frozen=True):
    """A run's analysis, with what a study compares between runs: exact partitions a step, and kernels, by rank."""

    analysis: RunAnalysis
    partitions: dict[int, list[Partition]]
    kernels: dict[int, KernelTable]
    exchanges: dict[int, RankExchanges] = {}
    records: dict[int, RankRecord] = {}  # what a replay needs, where that was asked for and the ranks are few
    ready: dict[int, dict[int, int]] = {}  # by rank and collective, when its data can be there, ns
    host: list[HostCause] = []  # what the hosts' own records say, side by side
    windows: list["Explained"] = []  # each by itself, of a run that was profiled in several
    usual: "Explained | None" = None  # the windows at the usual level, beside those of steps that became longer


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
    quality.reasons[:0] = ranks.reasons
    broken = [one for one in ranks.refused if not one.stranger]
    if quality.verdict == "good" and broken:
        quality.verdict = "degraded"
    unread = {one.rank for one in broken if one.rank is not None and one.rank < _LARGEST_WORLD} - ranks.summaries.keys()
    if unread:
        quality.left_out_ranks = sorted({*quality.left_out_ranks, *unread})
        explained.analysis.world_size = max(explained.analysis.world_size, quality.left_out_ranks[-1] + 1)
    return explained


def join(summaries: Mapping[int, RankSummary], name: str) -> Explained:
    """Join the ranks' summaries into one run's analysis."""
    world_size = _world_size(summaries)
    collectives = {rank: one.collectives for rank, one in summaries.items()}
    clocks = host_offsets({rank: one.host for rank, one in summaries.items()}, collectives)
    matches = match_collectives(collectives, clocks.offsets)
    waits = [wait_of(match, collectives, clocks.offsets) for match in matches]
    ready: dict[int, dict[int, int]] = {rank: {} for rank in summaries}
    awaited: dict[int, dict[int, int]] = {rank: {} for rank in summaries}
    for match, wait in zip(matches, waits, strict=True):
        if wait is not None:
            for rank, index in match.members.items():
                ready[rank][index] = wait.ready[rank]
                awaited[rank][index] = wait.awaited[rank]
    partitions, lost = _partition(_sound(summaries), ready, awaited)
    kernels = {rank: summaries[rank].kernels for rank in partitions}
    indices: dict[int, dict[int, int]] = {rank: {} for rank in summaries}
    for number, match in enumerate(matches):
        for rank, index in match.members.items():
            indices[rank][index] = number
    quality = judge(summaries, world_size, matches, [m for m, wait in zip(matches, waits, strict=True) if wait is None])
    quality.reasons.extend(clocks.reasons)
    quality.clocks_apart_ms = clocks.apart_ms
    if clocks.apart_ms is not None and quality.verdict == "good":
        quality.verdict = "degraded"
    quality.left_out_ranks = [rank for rank in summaries if rank not in partitions]
    quality.lossy_ranks = [rank for rank in partitions if summaries[rank].lossy]
    quality.several_devices = [_devices(rank, summaries[rank]) for rank in partitions if summaries[rank].busy]
    quality.cut_ranks = [rank for rank in partitions if summaries[rank].cut_off]
    quality.reasons.extend(_left_out(summaries, quality.left_out_ranks))
    open_ended = {rank for rank, one in summaries.items() if one.shares is not None and one.shares.windows.open_ended}
    totals = {rank: total(steps) for rank, steps in partitions.items()}
    usable = quality.verdict != "unusable"  # else the partition is of what the profiler happened to see
    splits = [rank_split(rank, summaries[rank], totals[rank], len(partitions[rank])) for rank in partitions]
    analysis = RunAnalysis(
        name=name,
        world_size=world_size,
        activity=_activity(summaries),
        device=next((one.device for one in summaries.values() if one.device), None),
        backend=_backend(summaries),
        framework=next((one.framework for one in summaries.values() if one.framework != "torch"), "torch"),
        trains=_trains(kernels),
        steps_by=(steps_by := _step_source(summaries)),
        quality=quality,
        ranks=splits,
        steps=[
            step_split(rank, summaries[rank], index, part)
            for rank, steps in partitions.items()
            for index, part in enumerate(steps)
        ],
        collectives=[
            collective_row(index, match, wait, collectives)
            for index, (match, wait) in enumerate(zip(matches, waits, strict=True))
        ],
        groups=group_rows(_sound(summaries), ready),
        experts=expert_rows(_sound(summaries), _held_by(matches, _sound(summaries)), ready),
        pipelines=pipeline_rows(_sound(summaries), splits),
        kernels=top_kernels(kernels, collectives),
        kinds=kernel_kinds(kernels, splits),
        efficiency=efficiency_of(_in_common(summaries, partitions)) if usable else None,
    )
    if usable and analysis.efficiency is None and len(splits) > 1:
        quality.reasons.append(f"no efficiency factors: {_why_no_factors(summaries, partitions)}")
    if usable and (untold := [rank for rank in partitions if summaries[rank].lost_collectives_share > _TOLD]):
        why = f"the profiler lost collectives of {_ranks_text(untold)}, so that what ranks wait for is not told"
        analysis.unpriced = Reason("lost", f"nothing is predicted: {why}")
    # where some collectives are lost, those that stand side by side need not be the same
    known = usable and analysis.unpriced is None and not quality.lossy_ranks
    if known and (other := _other_steps(matches, collectives)):
        why = f"what is step {other[1]} of rank {other[0]} is step {other[3]} of rank {other[2]}, by their collectives"
        analysis.unpriced = Reason("other_steps", f"nothing is predicted: {why}")
    if usable and steps_by is not None and analysis.unpriced is None:
        same, lost_there, open_there = _same_steps(summaries, partitions, lost, open_ended)
        late = name_late_ranks(
            same, lost_there, kernels, open_there, {rank: summaries[rank].multiplied for rank in partitions}
        )
        step_ms, on_cpu = mean_step_ms(analysis, "window"), analysis.activity == "cpu"
        measured = measured_findings(late, step_ms, ranks=len(partitions), on_cpu=on_cpu)
        keep(analysis, with_loading(measured, same, open_there, step_ms, on_cpu=on_cpu))
    sizes = {one.index: one.bytes for one in analysis.collectives}
    exchanges = {
        rank: rank_exchanges(one.shares, one.collectives, ready[rank], indices[rank], sizes)
        for rank, one in summaries.items()
        if one.shares is not None
    }
    hosts = {
        rank: one.host_evidence
        for rank, one in summaries.items()
        if one.host_evidence is not None and one.evidence.whole_steps != 0
    }
    if usable and analysis.framework == "torch":
        quality.reasons.extend(_calls_alone([rank for rank, one in hosts.items() if one.calls_alone]))
    return Explained(analysis, partitions, kernels, exchanges, ready=ready, host=compare_hosts(hosts) if usable else [])


def _calls_alone(ranks: Sequence[int]) -> Iterator[str]:
    """Yield what is missing where the device and its calls alone were recorded."""
    if ranks:
        yield (
            f"no operators in the trace{'s' if len(ranks) > 1 else ''} of {_ranks_text(ranks)}: what hosts do between "
            "their calls is not told; record ProfilerActivity.CPU as well"
        )


def _sound(summaries: Mapping[int, RankSummary]) -> Mapping[int, RankSummary]:
    """Return the ranks whose files are whole and hold what the job ran on, when, and in which step; where none is,
    those that hold it at least, and else all.
    """
    lost = [
        rank
        for rank, one in summaries.items()
        if lacks_its_device(one) or one.timeless or one.launchless or one.activityless or one.workless or one.misscaled
    ]
    holding = {rank: one for rank, one in summaries.items() if rank not in lost}
    return {rank: one for rank, one in holding.items() if not one.cut_off} or holding or summaries


def _other_steps(
    matches: Sequence[Match], collectives: Mapping[int, Sequence[RankCollective]]
) -> tuple[int, int, int, int] | None:
    """Return two ranks and what most of their collectives say of their steps: one step, by two numbers; else None.

    A collective is in the same step on all its ranks. Where it is not, ranks count their steps differently, or have
    them from marks that differ, and side by side stands what is not the same.
    """
    together: dict[tuple[int, int], Counter[tuple[int, int]]] = {}
    for match in matches:
        first, *others = sorted(match.members)
        for rank in others:
            own, other = (collectives[one][match.members[one]].step for one in (first, rank))
            if own is not None and other is not None:
                together.setdefault((first, rank), Counter())[own, other] += 1
    for (first, rank), found in together.items():
        apart = Counter({pair: count for pair, count in found.items() if pair[0] != pair[1]})
        if apart.total() > _OTHER_STEPS * found.total():
            (own, other), _ = apart.most_common(1)[0]
            return first, own, rank, other
    return None


def _devices(rank: int, one: RankSummary) -> DevicesOfRank:
    return DevicesOfRank(rank=rank, busy=list(one.busy), by_turns=sum(one.busy) <= _BY_TURNS * one.busy_any)


def _left_out(summaries: Mapping[int, RankSummary], ranks: Sequence[int]) -> Iterator[str]:
    """Yield why ranks whose files are there are in no mean."""
    cut = [rank for rank in ranks if summaries[rank].cut_off]
    timeless = [rank for rank in ranks if rank not in cut and summaries[rank].timeless]
    launchless = [rank for rank in ranks if summaries[rank].launchless and rank not in (*cut, *timeless)]
    misscaled = [rank for rank in ranks if summaries[rank].misscaled and rank not in (*cut, *timeless, *launchless)]
    named = (*cut, *timeless, *launchless, *misscaled)
    activityless = [rank for rank in ranks if summaries[rank].activityless and rank not in named]
    empty = [rank for rank in ranks if rank not in (*named, *activityless)]
    if cut:
        yield f"left out of every mean: {_ranks_text(cut)}, whose files are cut off"
    if timeless:
        yield f"left out of every mean: {_ranks_text(timeless)}, whose time stamps are lost"
    if launchless:
        yield f"left out of every mean: {_ranks_text(launchless)}, most of whose activities have lost their launch"
    if misscaled:
        yield f"left out of every mean: {_ranks_text(misscaled)}, whose times are in another unit"
    if activityless:
        yield f"left out of every mean: {_ranks_text(activityless)}, of whose launches most have nothing in the trace"
    if empty:
        yield f"left out of every mean: {_ranks_text(empty)}, whose files hold nothing of what the job ran on"


def _ranks_text(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _partition(
    summaries: Mapping[int, RankSummary],
    ready: Mapping[int, Mapping[int, int]],
    awaited: Mapping[int, Mapping[int, int]],
) -> tuple[dict[int, list[Partition]], dict[int, dict[int, list[int]]]]:
    """Return each rank's steps, cut into parts, and its exposed wait for each other rank, ns a step.

    `ready` and `awaited`: by rank and its collective's index, when the data can be there and which rank it is of. Ranks
    without steps are left out.
    """
    partitions: dict[int, list[Partition]] = {}
    lost: dict[int, dict[int, list[int]]] = {}
    for rank, summary in summaries.items():
        if summary.shares is None:
            continue
        waiting, transfer = wait_and_transfer(summary.collectives, ready[rank])
        partitions[rank] = complete(summary.shares, transfer, waiting)
        order = sorted(ready[rank])
        lost[rank] = exposed_wait_by_rank(
            summary.shares,
            AwaitedWaits(
                start=tuple(summary.collectives[index].start for index in order),
                ready=tuple(ready[rank][index] for index in order),
                awaited=tuple(awaited[rank][index] for index in order),
            ),
            transfer,
        )
    return partitions, lost


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
    off = _profiles_nothing(folder)
    analysis = RunAnalysis(
        name=folder.path.name,
        world_size=info.world_size or 1,
        activity="cpu" if info.devices and info.devices[0].kind == "cpu" else "gpu",
        quality=Quality(verdict="unusable", reasons=[_UNPROFILED if off else reason], unprofiled=off),
    )
    add_run_folder(analysis, folder)
    return Explained(analysis, {}, {})


def _profiles_nothing(folder: RunFolder) -> bool:
    """Tell whether a job of ours was told to profile no step."""
    from scalescope.records.frozen import read_frozen  # loads YAML, which no other answer takes

    try:
        profiler = read_frozen(folder.config).get("profiler")
    except (OSError, UserError):  # what is damaged tells nothing
        return False
    return isinstance(profiler, dict) and profiler.get("enabled") is False


def add_run_folder(analysis: RunAnalysis, folder: RunFolder) -> None:
    """Add what a run folder says beside its traces. Raises UserError where its documents do not decode."""
    info = folder.read_info()
    facts = folder.read_facts()
    if facts is not None:
        analysis.model, analysis.strategy = facts.model, facts.strategy
    if info.world_size:
        analysis.world_size = info.world_size
    if info.devices:
        analysis.device = info.devices[0].name
    try:
        rows = folder.read_steps()
    except msgspec.DecodeError as error:
        analysis.quality.reasons.append(f"steps.jsonl: {error}")
        rows = []
    add_steps(analysis, rows_of_answer(analysis, rows))
    keep(analysis, analysis.findings)  # its steps may tell what no window met
    if analysis.throughput is not None and facts is not None:
        analysis.throughput.counts_batches = facts.counts_batches
    analysis.last_collectives, _ = read_flight(folder, info.world_size)


#: What folders of traces are called, whatever the job.
_OF_TRACES = frozenset({"tb", "trace", "traces", "log", "logs", "profile", "profiler"})
_UNPROFILED = "no step was profiled (profiler=none)"


def _name_of(path: Path) -> str:
    """Return what a path's traces are called by: not by a name that any folder of traces has."""
    resolved = path.resolve()
    while resolved.name.lower() in _OF_TRACES and resolved.parent.name:
        resolved = resolved.parent
    return resolved.name


#: Of two ranks' collectives so many are in steps of two numbers, where ranks do not count them alike.
_OTHER_STEPS = 0.3
#: Devices whose kernels take no more in all than this times the time in which any runs take turns.
_BY_TURNS = 1.1
#: Of a rank's collectives, without more of them it cannot be told what ranks wait for.
_TOLD = 0.1
#: A larger world is no world but a damaged header, or a file's name that holds another number.
_LARGEST_WORLD = 10_000_000


def _world_size(summaries: Mapping[int, RankSummary]) -> int:
    sizes = [len(summaries), max(summaries) + 1, *(one.world_size or 0 for one in summaries.values())]
    return max(size for size in sizes if size <= max(_LARGEST_WORLD, len(summaries)))


def _why_no_factors(summaries: Mapping[int, RankSummary], partitions: Mapping[int, Sequence[Partition]]) -> str:
    """Return why the ranks' windows have no efficiency factors, where they compute."""
    held = {tuple(_numbers(summaries[rank])) for rank in partitions}
    if len(held) > 1:
        return "the ranks' windows are not of the same steps"
    spans = {rank: total(steps).window for rank, steps in partitions.items()}
    longest = max(spans, key=lambda rank: spans[rank])
    return (
        f"of the same steps rank {longest}'s window is {spans[longest] / 1e6:.1f} ms and the shortest "
        f"{min(spans.values()) / 1e6:.1f} ms: what a rank does at the end of the last of them the others meet in the "
        "next, which was not recorded"
    )


def _in_common(summaries: Mapping[int, RankSummary], partitions: Mapping[int, Sequence[Partition]]) -> list[Partition]:
    """Return each rank's partition over the steps that all ranks hold; over all that it has where they share none.

    One rank's trace may end earlier than the others': what it lacks is no imbalance.
    """
    held = {rank: _numbers(summaries[rank]) for rank in partitions}
    shared = set.intersection(*map(set, held.values())) if held else set()
    return [
        total([step for number, step in zip(held[rank], steps, strict=True) if number in shared or not shared])
        for rank, steps in partitions.items()
    ]


def _same_steps(
    summaries: Mapping[int, RankSummary],
    partitions: Mapping[int, list[Partition]],
    lost: Mapping[int, Mapping[int, list[int]]],
    open_ended: set[int],
) -> tuple[Mapping[int, list[Partition]], Mapping[int, Mapping[int, list[int]]], set[int]]:
    """Return partitions, exposed waits and the ranks whose last step is open over the steps that all ranks hold.

    Everything as it is where they hold the same, or share none: side by side stands one step, not one place in a list.
    """
    held = {rank: _numbers(summaries[rank]) for rank in partitions}
    shared = set.intersection(*map(set, held.values())) if held else set()
    if not shared or all(len(numbers) == len(shared) for numbers in held.values()):
        return partitions, lost, open_ended
    at = {rank: [place for place, number in enumerate(numbers) if number in shared] for rank, numbers in held.items()}
    return (
        {rank: [steps[place] for place in at[rank]] for rank, steps in partitions.items()},
        {
            rank: {awaited: [waits[place] for place in at[rank]] for awaited, waits in own.items()}
            for rank, own in lost.items()
        },
        {rank for rank in open_ended if rank in held and held[rank][-1] in shared},
    )


def _numbers(summary: RankSummary) -> list[int]:
    return summary.shares.windows.numbers if summary.shares is not None else []


def _held_by(matches: Sequence[Match], summaries: Mapping[int, RankSummary]) -> list[Match]:
    """Return the matches whose members all count."""
    return [match for match in matches if match.members.keys() <= summaries.keys()]


def _step_source(summaries: Mapping[int, RankSummary]) -> StepSource | None:
    """Return what told the steps of most ranks; None where none has any."""
    told = Counter(one.evidence.steps for one in summaries.values() if one.evidence.steps is not None)
    return told.most_common(1)[0][0] if told else None


def _backend(summaries: Mapping[int, RankSummary]) -> str | None:
    """Return by which library most ranks' devices talk, as their headers say: `nccl`, or `cpu:gloo,cuda:nccl`."""
    told = Counter(name for one in summaries.values() if (name := _of_device(one.backend, one.activity)))
    return told.most_common(1)[0][0] if told else None


def _of_device(backend: str, activity: str) -> str:
    by_device = dict(part.split(":", 1) for part in backend.lower().split(",") if ":" in part)
    return by_device.get("cpu" if activity == "cpu" else "cuda", "") if by_device else backend.lower()


_OF_GRADIENTS = re.compile(r"backward|(^|[^a-z])bwd|bwd_|[dw]grad|gradient|gamma_?beta", re.IGNORECASE)


def _trains(kernels: Mapping[int, KernelTable]) -> bool:
    """Tell by its kernels' or operators' names whether a job computes gradients, or steps an optimiser."""
    names = {name for table in kernels.values() for name in table.names}
    return any(kind_of(name) == OPTIMISER or _OF_GRADIENTS.search(name) for name in names)


def _activity(summaries: Mapping[int, RankSummary]) -> Literal["gpu", "cpu"]:
    return "gpu" if any(one.activity == "gpu" or lacks_its_device(one) for one in summaries.values()) else "cpu"
