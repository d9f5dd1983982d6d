"""The ranks' summaries joined into one run's analysis."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from scalescope.scaling.answer import Quality, RunAnalysis
from scalescope.scaling.evidence.compare import compare_hosts
from scalescope.scaling.evidence.host_cause import HostCause
from scalescope.scaling.evidence.host_evidence import HostEvidence
from scalescope.scaling.finding.finding import Reason
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.findings.measured import measured_findings, with_loading
from scalescope.scaling.findings.shares import mean_step_ms
from scalescope.scaling.join.common_steps import in_common, same_steps, why_no_factors
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.join.job import (
    activity_of,
    backend_of,
    devices_of,
    does_train,
    left_out,
    ranks_text,
    step_source_of,
    world_size_of,
)
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.rank.exchanges import RankExchanges, rank_exchanges
from scalescope.scaling.rank.kernels import KernelTable
from scalescope.scaling.rank.partition import Partition, complete, total
from scalescope.scaling.ranks.clocks import Clocks, host_offsets
from scalescope.scaling.ranks.matching import Match, match_collectives
from scalescope.scaling.ranks.quality import judge, sound
from scalescope.scaling.ranks.rows import collective_row, rank_split, step_split
from scalescope.scaling.ranks.steps.common import other_steps
from scalescope.scaling.ranks.summary import RankSummary
from scalescope.scaling.ranks.waits import MatchedWait, wait_and_transfer, wait_of
from scalescope.scaling.verdicts.efficiency import efficiency_of
from scalescope.scaling.verdicts.experts import expert_rows
from scalescope.scaling.verdicts.groups import group_rows
from scalescope.scaling.verdicts.kinds import kernel_kinds
from scalescope.scaling.verdicts.pipeline import pipeline_rows
from scalescope.scaling.verdicts.stragglers import AwaitedWaits, exposed_wait_by_rank, name_late_ranks
from scalescope.scaling.verdicts.top_kernels import top_kernels

#: Of a rank's collectives, without more of them it cannot be told what ranks wait for.
_TOLD = 0.1


@dataclass(frozen=True)
class _SideBySide:
    """The ranks side by side: which of their collectives are one, and their steps cut into parts by that."""

    summaries: Mapping[int, RankSummary]
    clocks: Clocks
    matches: Sequence[Match]
    waits: Sequence[MatchedWait | None]  # of each match
    ready: dict[int, dict[int, int]]  # by rank and collective, when its data can be there, ns
    partitions: dict[int, list[Partition]]  # of the ranks that have steps
    lost: Mapping[int, Mapping[int, list[int]]]  # by rank and the one it waits for, what of that is exposed, ns a step

    @cached_property
    def collectives(self) -> dict[int, list[RankCollective]]:
        return {rank: one.collectives for rank, one in self.summaries.items()}

    @cached_property
    def kernels(self) -> dict[int, KernelTable]:
        return {rank: self.summaries[rank].kernels for rank in self.partitions}

    @cached_property
    def hosts(self) -> dict[int, HostEvidence]:
        """Of the ranks with whole steps, what was recorded of the host."""
        return {
            rank: one.host_evidence
            for rank, one in self.summaries.items()
            if one.host_evidence is not None and one.evidence.whole_steps != 0
        }


def join(summaries: Mapping[int, RankSummary], name: str) -> Explained:
    """Join the ranks' summaries into one run's analysis."""
    ranks = _lay_side_by_side(summaries)
    world_size = world_size_of(summaries)
    analysis = _analysis(ranks, name, world_size, _quality(ranks, world_size))
    quality = analysis.quality
    usable = quality.verdict != "unusable"
    if usable:
        if analysis.efficiency is None and len(analysis.ranks) > 1:
            quality.reasons.append(f"no efficiency factors: {why_no_factors(summaries, ranks.partitions)}")
        analysis.unpriced = _why_unpriced(ranks, quality)
        if analysis.steps_by is not None and analysis.unpriced is None:
            _add_measured(analysis, ranks)
        if analysis.framework == "torch":
            quality.reasons.extend(_calls_alone([rank for rank, one in ranks.hosts.items() if one.calls_alone]))
    host = compare_hosts(ranks.hosts) if usable else []
    quality.reasons.extend(_opening(host))
    return Explained(
        analysis,
        ranks.partitions,
        ranks.kernels,
        _exchanges(ranks, {one.index: one.bytes for one in analysis.collectives}),
        ready=ranks.ready,
        host=host,
    )


def _lay_side_by_side(summaries: Mapping[int, RankSummary]) -> _SideBySide:
    """Match the ranks' collectives, and cut their steps into parts by when each one's data could be there."""
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
    partitions, lost = _partition(sound(summaries), ready, awaited)
    return _SideBySide(summaries, clocks, matches, waits, ready, partitions, lost)


def _quality(ranks: _SideBySide, world_size: int) -> Quality:
    """Return how far the ranks' traces can be trusted, each by itself and beside the others."""
    summaries, clocks = ranks.summaries, ranks.clocks
    unsplit = [match for match, wait in zip(ranks.matches, ranks.waits, strict=True) if wait is None]
    quality = judge(summaries, world_size, ranks.matches, unsplit)
    quality.reasons.extend(clocks.reasons)
    quality.clocks_apart_ms = clocks.apart_ms
    if clocks.apart_ms is not None and quality.verdict == "good":
        quality.verdict = "degraded"
    quality.left_out_ranks = [rank for rank in summaries if rank not in ranks.partitions]
    quality.lossy_ranks = [rank for rank in ranks.partitions if summaries[rank].lossy]
    quality.incomplete_ranks = _incomplete(ranks)
    quality.several_devices = [devices_of(rank, summaries[rank]) for rank in ranks.partitions if summaries[rank].busy]
    quality.cut_ranks = [rank for rank in ranks.partitions if summaries[rank].cut_off]
    quality.reasons.extend(left_out(summaries, quality.left_out_ranks))
    return quality


def _incomplete(ranks: _SideBySide) -> list[int]:
    """Return the ranks of which so much is missing that what costs each step may be: at least one event a step.

    A collective that others have, and the ones before and after it as well, was not left out by a job that goes on.
    Where all of a group lack some, they are paired wrongly, and none need be missing.
    """
    lacks: dict[str, Counter[int]] = {}
    for match in ranks.matches:
        if match.missing == "member":
            lacks.setdefault(match.group, Counter(dict.fromkeys(match.members, 0))).update(match.missing_ranks)
    lacking = {rank for group in lacks.values() for rank, count in group.items() if count > 0 == min(group.values())}
    return [
        rank
        for rank, steps in ranks.partitions.items()
        if rank in lacking or ranks.summaries[rank].evidence.invalid_events >= max(len(steps), 1)
    ]


def _analysis(ranks: _SideBySide, name: str, world_size: int, quality: Quality) -> RunAnalysis:
    """Return what the ranks' traces say without any conclusion."""
    summaries, partitions, kernels = ranks.summaries, ranks.partitions, ranks.kernels
    counting = sound(summaries)
    splits = [rank_split(rank, summaries[rank], total(steps), len(steps)) for rank, steps in partitions.items()]
    usable = quality.verdict != "unusable"  # else the partition is of what the profiler happened to see
    return RunAnalysis(
        name=name,
        world_size=world_size,
        hosts=_hosts_of(summaries, world_size),
        activity=activity_of(summaries),
        device=next((one.device for one in summaries.values() if one.device), None),
        backend=backend_of(summaries),
        framework=next((one.framework for one in summaries.values() if one.framework != "torch"), "torch"),
        trains=does_train(kernels),
        steps_by=step_source_of(summaries),
        quality=quality,
        ranks=splits,
        steps=[
            step_split(rank, summaries[rank], index, part)
            for rank, steps in partitions.items()
            for index, part in enumerate(steps)
        ],
        collectives=[
            collective_row(index, match, wait, ranks.collectives)
            for index, (match, wait) in enumerate(zip(ranks.matches, ranks.waits, strict=True))
        ],
        groups=group_rows(counting, ranks.ready),
        experts=expert_rows(counting, _held_by(ranks.matches, counting), ranks.ready),
        pipelines=pipeline_rows(counting, splits),
        kernels=top_kernels(kernels, ranks.collectives),
        kinds=kernel_kinds(kernels, splits),
        efficiency=efficiency_of(in_common(summaries, partitions)) if usable else None,
    )


def _hosts_of(summaries: Mapping[int, RankSummary], world_size: int) -> int | None:
    """Return on how many hosts a job's ranks run; None where a rank's trace lacks, or does not name its host."""
    named = {one.host for one in summaries.values()}
    return len(named) if len(summaries) == world_size and all(named) else None


def _why_unpriced(ranks: _SideBySide, quality: Quality) -> Reason | None:
    """Return why nothing is predicted of ranks that do not stand side by side as they ran."""
    untold = [rank for rank in ranks.partitions if ranks.summaries[rank].lost_collectives_share > _TOLD]
    if untold:
        why = f"the profiler lost collectives of {ranks_text(untold)}, so that what ranks wait for is not told"
        return Reason("lost", f"nothing is predicted: {why}")
    # where some collectives are lost, those that stand side by side need not be the same
    if not quality.lossy_ranks and (other := other_steps(ranks.matches, ranks.collectives)):
        why = f"what is step {other[1]} of rank {other[0]} is step {other[3]} of rank {other[2]}, by their collectives"
        return Reason("other_steps", f"nothing is predicted: {why}")
    return None


def _add_measured(analysis: RunAnalysis, ranks: _SideBySide) -> None:
    """Add the findings that need no replay: who is late, what for, and what all load."""
    open_ended = {
        rank for rank, one in ranks.summaries.items() if one.shares is not None and one.shares.windows.open_ended
    }
    same, lost, open_there = same_steps(ranks.summaries, ranks.partitions, ranks.lost, open_ended)
    multiplied = {rank: ranks.summaries[rank].multiplied for rank in ranks.partitions}
    late = name_late_ranks(same, lost, ranks.kernels, open_there, multiplied)
    step_ms, on_cpu = mean_step_ms(analysis, "window"), analysis.activity == "cpu"
    measured = measured_findings(late, step_ms, ranks=len(ranks.partitions), on_cpu=on_cpu)
    keep(analysis, with_loading(measured, same, open_there, step_ms, on_cpu=on_cpu))


def _exchanges(ranks: _SideBySide, sizes: Mapping[int, int | None]) -> dict[int, RankExchanges]:
    """Return what each rank exchanges; `sizes`: of the matched collectives, bytes by index."""
    indices: dict[int, dict[int, int]] = {rank: {} for rank in ranks.summaries}
    for number, match in enumerate(ranks.matches):
        for rank, index in match.members.items():
            indices[rank][index] = number
    return {
        rank: rank_exchanges(one.shares, one.collectives, ranks.ready[rank], indices[rank], sizes)
        for rank, one in ranks.summaries.items()
        if one.shares is not None
    }


def _opening(host: Sequence[HostCause]) -> Iterator[str]:
    """Yield what is taken for recording's own begin, which one window cannot tell from the job's."""
    for cause in host:
        if cause.opening:
            who = "all hosts stand" if cause.rank is None else f"the host of rank {cause.rank} stands"
            yield (
                f"{who} still once, for {max(cause.ns) / 1e6:.0f} ms, before the backward pass of the window's first "
                "step: that is taken for the begin of recording, and is no part of the step as run; if the job does "
                "so itself, steps that are recorded later have it, too"
            )


def _calls_alone(ranks: Sequence[int]) -> Iterator[str]:
    """Yield what is missing where the device and its calls alone were recorded."""
    if ranks:
        yield (
            f"no operators in the trace{'s' if len(ranks) > 1 else ''} of {ranks_text(ranks)}: what hosts do between "
            "their calls is not told; record ProfilerActivity.CPU as well"
        )


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


def _held_by(matches: Sequence[Match], summaries: Mapping[int, RankSummary]) -> list[Match]:
    """Return the matches whose members all count."""
    return [match for match in matches if match.members.keys() <= summaries.keys()]
