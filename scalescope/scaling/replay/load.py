"""From a run folder, a study or plain traces to replays: which ranks, which sweep, which run on one rank."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.rows import TrainFacts
from scalescope.scaling.answer import RunAnalysis, read_run_answer
from scalescope.scaling.costs.points import Launch, launch_of
from scalescope.scaling.rank.records.record import MOST_ACTIVITIES, MOST_RANKS, RankRecord, within
from scalescope.scaling.ranks.read import read_ranks
from scalescope.scaling.replay.times import CollectiveTimes, ModelTimes
from scalescope.scaling.replay.whatif.replayer import Replayer
from scalescope.scaling.trace.sources import find_sources


class Target(msgspec.Struct, frozen=True):
    """One run to replay, and what of its study helps."""

    path: Path
    name: str
    study: Path | None = None


def find_targets(path: Path) -> list[Target]:
    """Return what is to be replayed at a path: a study's largest run of each job, or the run or the traces themselves.

    Raises UserError where there is nothing.
    """
    if not (path / "run.json").is_file():
        return [Target(path, path.resolve().name, None)]
    folder = RunFolder.open(path)
    if folder.read_info().kind == "train":
        parent = path.resolve().parent
        return [Target(path, path.resolve().name, parent if (parent / "run.json").is_file() else None)]
    if folder.read_info().kind == "sweep":
        raise UserError(f"{path} is a sweep; give a training run or a study")
    tried = {row.run for row in folder.read_tried()}
    largest: dict[tuple[str, ...], tuple[int, RunFolder]] = {}
    for child in _traced(folder):
        try:
            facts, size = child.read_facts(), child.read_info().world_size or 1
        except UserError:  # the study's analysis says so
            continue
        if facts is None or child.path.name in tried:
            continue
        if facts.job not in largest or size > largest[facts.job][0]:
            largest[facts.job] = (size, child)
    if not largest:
        raise UserError(f"{path} holds no training run with traces; profile some: scalescope study profiler=window")
    return [Target(child.path, child.path.name, path) for _, child in largest.values()]


def open_replayer(
    target: Target,
    analysis: RunAnalysis | None = None,
    sweeps: Sequence[Launch] = (),
    known: Mapping[int, RankRecord] | None = None,
    jobs: int | None = None,
) -> Replayer:
    """Read a target's traces, unless their records are `known`, and what its study knows.

    `sweeps` are other than the study's own; `jobs`: see Replayer. Raises UserError where there are no traces.
    """
    answer = analysis if analysis is not None else _analysis(target.path)
    records = _with_steps(known) if known else read_records(target.path, answer, jobs)
    launches, alone = _helpers(target, len(records))
    device = next((one.device for one in records.values() if one.device is not None), None)
    launches = [one for one in [*launches, *sweeps] if device is None or one.device in (None, device)]
    replayer = Replayer(records, _times_of(launches) if launches else None, alone, jobs)
    replayer.cut_by_bucket = _is_cut_by_bucket(target.path)
    return replayer


def _is_cut_by_bucket(path: Path) -> bool:
    try:
        facts = RunFolder(path).read_facts()
    except UserError:
        return False
    return facts is not None and facts.compiled_by_bucket is True


def _times_of(launches: Sequence[Launch]) -> CollectiveTimes | None:
    """Return what sweeps tell; None where they are not of one device: the trace's own collectives have to do."""
    from scalescope.scaling.costs.model import CostModel, NotKnown

    try:
        return ModelTimes(CostModel(launches))
    except NotKnown:
        return None


def read_records(path: Path, analysis: RunAnalysis | None = None, jobs: int | None = None) -> dict[int, RankRecord]:
    """Return the ranks' records, at most MOST_RANKS of them. Raises UserError where no file is a trace."""
    sources = find_sources(path)
    numbered = {source.rank if source.rank is not None else at: source for at, source in enumerate(sources)}
    chosen = [numbered[rank] for rank in _chosen(sorted(numbered), analysis)]
    return _with_steps(read_ranks(chosen, jobs, for_replay=True).records)


def _with_steps(records: Mapping[int, RankRecord]) -> dict[int, RankRecord]:
    """Return the records that hold steps, by rank. Raises UserError where there is too much to replay."""
    found = {rank: one for rank, one in sorted(records.items()) if one.count and one.steps}
    count = sum(one.count for one in found.values())
    if count > MOST_ACTIVITIES:
        steps = max(len(one.steps) for one in found.values())
        raise UserError(
            f"{count:,} activities in {steps} step{'s' * (steps > 1)} of {len(found)} rank{'s' * (len(found) > 1)} are "
            f"more than the {MOST_ACTIVITIES:,} that are replayed; mark steps by profiler.step()"
        )
    # a host may have done nothing but hand over
    return _in_common({rank: one for rank, one in found.items() if one.start})


def _in_common(records: dict[int, RankRecord]) -> dict[int, RankRecord]:
    """Return the records over the steps that all ranks hold: what one's window lacks is no work of the others' own.

    Raises UserError where there are none, or where what lies between them is in some of the traces alone.
    """
    if len({tuple(one.steps) for one in records.values()}) < 2:
        return records
    shared = set.intersection(*(set(one.steps) for one in records.values()))
    kept = [[number for number in one.steps if number in shared] for one in records.values()]
    if not shared:
        raise UserError("the ranks' traces hold no step in common")
    for one in records.values():
        first = one.steps.index(kept[0][0])
        if one.steps[first : first + len(shared)] != kept[0]:
            raise UserError("the steps that the ranks' traces hold in common do not follow one another in all of them")
    return {rank: _over(one, kept[0]) for rank, one in records.items()}


def _over(record: RankRecord, steps: list[int]) -> RankRecord:
    """Return a record over some of its steps, which follow one another."""
    first = record.steps.index(steps[0])
    edges = record.edges[first : first + len(steps) + 1]
    return replace(
        record,
        edges=edges,
        steps=steps,
        step=[number if number in steps else -1 for number in record.step],
        layers=within(record.layers, edges),
    )


def _chosen(ranks: Sequence[int], analysis: RunAnalysis | None) -> list[int]:
    if len(ranks) <= MOST_RANKS:
        return list(ranks)
    last = Counter(one.last_rank for one in analysis.collectives if one.last_rank is not None) if analysis else {}
    first = [rank for rank, _ in Counter(last).most_common(MOST_RANKS // 2) if rank in ranks]
    others = [rank for rank in ranks if rank not in first]
    stride = max(1, len(others) // (MOST_RANKS - len(first)))
    return sorted([*first, *others[::stride][: MOST_RANKS - len(first)]])


def _helpers(target: Target, ranks: int) -> tuple[list[Launch], RankRecord | None]:
    """Return the sweeps of a target's study, and the record of the same job on one rank."""
    if target.study is None:
        return [], None
    launches: list[Launch] = []
    alone = None
    own = RunFolder(target.path).read_facts()
    for child in RunFolder(target.study).read_children():
        try:
            info = child.read_info()
            if info.kind == "sweep":
                launches.append(launch_of(child))
            elif info.world_size == 1 and ranks > 1 and own is not None:
                facts = child.read_facts()
                if facts is not None and _computes_alike(facts, own):
                    alone = next(iter(read_records(child.path).values()), alone)
        except UserError:
            continue  # a run that broke off helps nobody; the target's own traces are what counts
    return [launch for launch in launches if launch.rows], alone


def _computes_alike(one: TrainFacts, other: TrainFacts) -> bool:
    """Whether one rank of each computes the same with the same kernels: a graph that is cut has others."""
    return (
        one.job == other.job
        and one.samples_per_rank_step == other.samples_per_rank_step
        and one.compiled_by_bucket == other.compiled_by_bucket
    )


def _traced(folder: RunFolder) -> list[RunFolder]:
    found = []
    for child in folder.read_children():
        try:
            if child.read_info().kind == "train" and find_sources(child.path):
                found.append(child)
        except UserError:
            continue
    return found


def _analysis(path: Path) -> RunAnalysis | None:
    folder = RunFolder(path)
    try:
        return read_run_answer(folder.analysis) if folder.analysis.is_file() else None
    except UserError:
        return None
