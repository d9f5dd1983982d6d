"""Pipelines: how much of a step stages stand idle, beside what the schedule itself costs, and which stage is slow.

Stages are the ranks of a group that only sends and receives, in the group's order, where all of them or none have a
backward pass. A stage's bubble is when it neither computes nor moves data: it waits for a partner, or is idle. A
schedule of p ranks and m micro-batches has a bubble of (p − 1)/(v·m + p − 1) of its own, GPipe and 1F1B alike, where
stages are even. v, the stages of a rank, is 1 unless the schedule says otherwise, as torch's interleaved one does
(rank/pipelining.py), with m; else m is how many activations a stage receives from the one before it in a step. A stage
that computes longer than the others makes all of them wait beyond that.
"""

import statistics
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from scalescope.records.operations import PAIRWISE
from scalescope.scaling.answer_rows import PipelineRow, RankSplit, Split
from scalescope.scaling.evidence.pipelining import ForwardPasses
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.order import weight
from scalescope.scaling.finding.sizes import bound_of
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.ranks.summary import RankSummary
from scalescope.scaling.trace.families import ENGINE_FRAMES

#: A stage that computes so much longer than the mean of the others holds them up.
_SLOW = 1.1
#: One that computes so much longer is what to begin with, whatever else the step is idle for.
_MUCH_LONGER = 1.3
#: A bubble that is a smaller share of the step is no finding.
_WORTH_SAYING = 0.02
#: What stages have by design, or what a bubble looks like where nobody knows that it is one.
_SAME_CAUSE: frozenset[Code] = frozenset(
    {"own_work", "more_work", "slower_compute", "alternating_load", "host_bound", "exposed_transfer", "slow_transfer",
     "unsteady", "nothing"}
)  # fmt: skip
#: Launching is told beside a bubble where it explains at least this share of the step that no schedule does.
_BY_LAUNCHES = 0.05

#: What holds up the host of one stage.
_OF_A_STAGES_HOST: frozenset[Code] = frozenset({"host_stall", "data_loading", "host_starved", "recompilation"})


def pipeline_rows(summaries: Mapping[int, RankSummary], ranks: Sequence[RankSplit]) -> list[PipelineRow]:
    """Return a row a pipeline whose stages are all traced; `ranks`: their partitions."""
    by_rank = {split.rank: split for split in ranks}
    groups: dict[tuple[str, tuple[int, ...]], dict[int, list[RankCollective]]] = {}
    for rank, summary in summaries.items():
        for one in summary.collectives:
            if one.group is not None and one.step is not None and len(one.group_ranks) > 1:
                groups.setdefault((one.group, one.group_ranks), {}).setdefault(rank, []).append(one)
    passes = {rank: summary.forward_passes for rank, summary in summaries.items()}
    return [
        _row(name, stages, own, by_rank, passes)
        for (name, stages), own in groups.items()
        if all(one.operation in PAIRWISE for calls in own.values() for one in calls)
        and all(rank in own and rank in by_rank for rank in stages)
        and (_told([passes[rank] for rank in stages]) or _are_stages([summaries[rank] for rank in stages]))
    ]


def _are_stages(summaries: Sequence[RankSummary]) -> bool:
    """Tell whether all ranks may be stages: what trains passes backward through all of them, or through none.

    One that others send gradients to, and that has no backward pass of its own, is a server of parameters.
    """
    backward = {
        any(one.name.startswith(ENGINE_FRAMES) for one in summary.host_evidence.operators)
        for summary in summaries
        if summary.host_evidence is not None and summary.host_evidence.operators
    }
    return len(backward) < 2


def _row(
    group: str,
    stages: tuple[int, ...],
    own: Mapping[int, list[RankCollective]],
    by_rank: Mapping[int, RankSplit],
    passes: Mapping[int, ForwardPasses | None],
) -> PipelineRow:
    splits = [by_rank[rank] for rank in stages]
    steps = max(1, min(split.steps for split in splits))
    each, micro_batches = _told([passes.get(rank) for rank in stages]) or (1, _micro_batches(stages, own))
    bubbles = [_bubble_ms(split) / max(1, split.steps) for split in splits]
    lengths = [split.window_ms / max(1, split.steps) for split in splits]
    own_share = (len(stages) - 1) / (each * micro_batches + len(stages) - 1) if micro_batches else None
    return PipelineRow(
        group=group,
        stages=list(stages),
        micro_batches=micro_batches,
        stages_per_rank=each,
        bubble_ms=statistics.fmean(bubbles),
        bubble=statistics.fmean(bubbles) / statistics.fmean(lengths),
        schedule_bubble=own_share,
        slow_rank=_slow_stage(splits),
        compute_ms={split.rank: split.compute_ms / max(1, split.steps) for split in splits},
        steps=steps,
    )


def rows_as_run(pipelines: Sequence[PipelineRow], splits: Sequence[Split]) -> list[PipelineRow]:
    """Return pipelines' rows of the step as run; `splits`: each rank's mean step without recording, which slows the
    hosts of stages and so stretches what these stand idle. A pipeline whose stages are not all given stays as it is.
    """
    by_rank = {split.rank: split for split in splits}
    rows = []
    for row in pipelines:
        own = [by_rank[rank] for rank in row.stages if rank in by_rank and by_rank[rank].window_ms]
        if len(own) == len(row.stages):
            bubble_ms = statistics.fmean(_bubble_ms(split) for split in own)
            step_ms = statistics.fmean(split.window_ms for split in own)
            compute_ms = {split.rank: split.compute_ms for split in own}
            row = replace(row, bubble_ms=bubble_ms, bubble=bubble_ms / step_ms, compute_ms=compute_ms)
        rows.append(row)
    return rows


def _bubble_ms(split: Split) -> float:
    return (
        split.exposed_wait_ms + split.exposed_unsplit_ms + split.idle_data_ms + split.idle_launch_ms
        + split.idle_queued_ms
    )  # fmt: skip


def _told(passes: Sequence[ForwardPasses | None]) -> tuple[int, int] | None:
    """Return how many stages each rank has, and how many micro-batches pass; None unless all ranks say the same."""
    said = {(one.stages, one.micro_batches) if one else None for one in passes}
    return said.pop() if len(said) == 1 else None


def _micro_batches(stages: tuple[int, ...], own: Mapping[int, list[RankCollective]]) -> int | None:
    """Return how many activations a stage receives from the one before it in a step.

    None where partners are not told, or where the last stage sends to the first one of several: an interleaved
    schedule, whose micro-batches pass more than once.
    """
    counts = []
    last = len(stages) - 1
    for place, rank in enumerate(stages):
        received: dict[int, int] = {}
        for one in own[rank]:
            if one.source is None or one.destination is None:
                return None
            if place == 0 and last > 1 and (one.source, one.destination) == (last, 0):
                return None
            if (one.source, one.destination) == (place - 1, place) and one.step is not None:
                received[one.step] = received.get(one.step, 0) + 1
        counts += list(received.values())
    return round(statistics.median(counts)) if counts else None


def _slow_stage(splits: Sequence[RankSplit]) -> int | None:
    """Return the rank whose stage computes longer than the others' do in the mean; None where they are even."""
    compute = {split.rank: split.compute_ms / max(1, split.steps) for split in splits}
    longest = max(compute, key=lambda rank: compute[rank])
    others = statistics.fmean(ms for rank, ms in compute.items() if rank != longest)
    return longest if others and compute[longest] > _SLOW * others else None


def with_bubbles(
    findings: Sequence[Finding], pipelines: Sequence[PipelineRow], step_ms: float, *, on_cpus: bool = False
) -> list[Finding]:
    """Return findings with those of pipelines' bubbles first, which take the place of what a bubble looks like.

    What is known to hold up one stage's host comes before them: the others stand idle for it, which is no schedule's.
    So does launching, where the devices of stages are so fast that the step is far longer than what they and the
    schedule take; of stages on CPUs, that idle in a receive, nothing of the kind is known.
    """
    worth = [row for row in pipelines if row.bubble >= _WORTH_SAYING and step_ms]
    if not worth:
        return list(findings)
    others = [one for one in findings if one.code not in _SAME_CAUSE and one.code != "pipeline_bubble"]
    told: list[Finding] = []
    launching = None if on_cpus else _beyond_the_schedule(findings, worth, step_ms)
    for row in worth:
        holding_up = [one for one in others if one not in told and _holds_up(one, row, step_ms)]
        held_up_ms = sum(weight(one) for one in holding_up)
        bubbles = _findings(row, step_ms, held_up_ms)
        slow_stage_first = bubbles[0].remedy is not None and bubbles[0].remedy.cure == "even_stages"
        if holding_up:  # which may be all that there is to a bubble
            bubbles = [one for one in bubbles if (one.ms or 0.0) >= _WORTH_SAYING * step_ms]
        if slow_stage_first and bubbles and held_up_ms < weight(bubbles[0]):
            told += bubbles
        else:
            told = [*holding_up, *told, *bubbles]
    if launching is not None:
        before = [one for one in told if weight(one) >= weight(launching)]
        told = [*before, launching, *(one for one in told if one not in before)]
    return [*told, *(one for one in others if one not in told)]


def _beyond_the_schedule(findings: Sequence[Finding], rows: Sequence[PipelineRow], step_ms: float) -> Finding | None:
    """Return what launching costs of a step beyond what the longest stage and the schedule take; None where that is
    little, or the schedule is not known.
    """
    found = next((one for one in findings if one.code == "host_bound" and one.ms is not None), None)
    if found is None or any(row.schedule_bubble is None or row.schedule_bubble >= 1 for row in rows):
        return None
    taken_ms = max(max(row.compute_ms.values()) / (1 - (row.schedule_bubble or 0.0)) for row in rows)
    most_ms = min(found.ms or 0.0, step_ms - taken_ms)
    if most_ms < _BY_LAUNCHES * step_ms:
        return None
    low_ms, high_ms = (None if ms is None else min(ms, step_ms - taken_ms) for ms in (found.low_ms, found.high_ms))
    return replace(found, ms=most_ms, low_ms=low_ms, high_ms=high_ms, fraction=most_ms / step_ms)


def _holds_up(one: Finding, row: PipelineRow, step_ms: float) -> bool:
    """Tell whether a finding is known to hold up the host of one of a pipeline's stages."""
    return (
        one.code in _OF_A_STAGES_HOST
        and one.rank in row.stages
        and one.backed == "replay"
        and not one.at_most
        and (one.low_ms or 0.0) > 0
        and weight(one) >= _WORTH_SAYING * step_ms
    )


def _findings(row: PipelineRow, step_ms: float, held_up_ms: float = 0.0) -> list[Finding]:
    """Return what may be had of a bubble: by even stages, where one is slow, and by more micro-batches, which leave the
    step no shorter than its longest stage computes, and mend what the schedule itself costs. First what brings more,
    and of a stage that is much longer that.

    `held_up_ms`: of a step, for what holds up a stage's host, which neither mends.
    """
    rows = [EvidenceRow(kind="figure", name="bubble", ms=row.bubble_ms, share=row.bubble, calls=row.micro_batches)]
    if row.schedule_bubble is not None:
        rows.append(EvidenceRow(kind="figure", name="schedule", share=row.schedule_bubble, calls=len(row.stages)))
    longest_ms = max(row.compute_ms.values())
    beyond_ms = max(0.0, min(row.bubble_ms, row.bubble_ms / row.bubble - longest_ms) - held_up_ms)
    if row.schedule_bubble is not None and row.schedule_bubble < 1:
        # for (p - 1) / (v * m) of what the longest stage computes the others fill and drain, at its pace
        beyond_ms = min(beyond_ms, longest_ms * row.schedule_bubble / (1 - row.schedule_bubble))
    if row.slow_rank is None:
        return [bound_of("pipeline_bubble", beyond_ms, step_ms, rows, Remedy(cure="more_micro_batches"))]
    others_ms = statistics.fmean(ms for rank, ms in row.compute_ms.items() if rank != row.slow_rank)
    rows.append(EvidenceRow(kind="figure", name="slow_stage", ms=longest_ms, others_ms=others_ms, value=row.slow_rank))
    uneven_ms = min(row.bubble_ms, longest_ms - statistics.fmean(row.compute_ms.values()))
    even = bound_of("pipeline_bubble", uneven_ms, step_ms, rows, Remedy(cure="even_stages"))
    batches = bound_of("pipeline_bubble", beyond_ms, step_ms, rows, Remedy(cure="more_micro_batches"))
    first = uneven_ms >= beyond_ms or longest_ms >= _MUCH_LONGER * others_ms
    return [even, batches] if first else [batches, even]
