"""The answer's rows of what ranks did: their windows, their steps, and the collectives that they had in common."""

from collections.abc import Mapping, Sequence

from scalescope.records.operations import bus_factor
from scalescope.scaling.answer_rows import Collective, LongerIn, RankSplit, StepSplit, StoodStill
from scalescope.scaling.evidence.gaps import PlacedGaps
from scalescope.scaling.rank.annotations.loading import from_workers
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.rank.partition import Partition
from scalescope.scaling.ranks.matching import Match
from scalescope.scaling.ranks.summary import RankSummary
from scalescope.scaling.ranks.waits import MatchedWait

#: From this share of its step on, what a host does unrecorded at one place in the loop is told with the step.
_MUCH_OF_IT = 0.25
#: … and the operator that takes so much of it beyond what it takes in others.
_WORTH_NAMING = 0.1


def rank_split(rank: int, summary: RankSummary, whole: Partition, steps: int) -> RankSplit:
    """Return a rank's window, in parts; `whole`: the sum of its steps, times in ns."""
    assert summary.shares is not None
    communication = summary.shares.communication_ns
    return RankSplit(
        rank=rank,
        **_milliseconds(whole),
        steps=steps,
        communication_ms=communication / 1e6,
        overlap_fraction=summary.shares.hidden_ns / communication if communication else None,
        before_window_ms=summary.before_window_ns / 1e6,
    )


def step_split(rank: int, summary: RankSummary, index: int, part: Partition) -> StepSplit:
    """Return one step of a rank, in parts; `index`: its place in the rank's window."""
    assert summary.shares is not None
    windows = summary.shares.windows
    last = index == len(windows) - 1
    number, kinds = windows.numbers[index], summary.evidence.step_kinds
    inputs = summary.step_inputs.get(number)
    return StepSplit(
        rank=rank,
        **_milliseconds(part),
        step=number,
        open_ended=last and windows.open_ended,
        kind=kinds[number] if number < len(kinds) else None,
        host_pace=_pace(summary, number),
        operators=_operators(summary, number),
        times_load=None if inputs is None else inputs.times_load,
        times_inputs=None if inputs is None else inputs.times,
        stood=_stood(summary, number, part.window),
        batches=_batches(summary, number),
        longer_in=_longer_in(summary, number, part.window),
    )


def _pace(summary: RankSummary, number: int) -> float | None:
    """Return the pace of a rank's host in the step of this number; None where nothing tells it."""
    host = summary.host_evidence
    if host is None:
        return None
    return next((pace / 100 for step, pace in zip(host.steps, host.paces, strict=False) if step == number), None)


def _operators(summary: RankSummary, number: int) -> int | None:
    """Return how many operators a rank runs in the step of this number; None where nothing tells it."""
    host = summary.host_evidence
    if host is None:
        return None
    return next((count for step, count in zip(host.steps, host.counts, strict=False) if step == number), None)


def _batches(summary: RankSummary, number: int) -> int | None:
    """Return how often a rank asks for a batch of worker processes in the step of this number; None where it does not.

    At an epoch's end it asks once more, in vain.
    """
    host = summary.host_evidence
    if host is None or number not in host.steps:
        return None
    at = host.steps.index(number)
    asked = [one.counts[at] for one in host.loading if one.counts and from_workers(one.annotation)]
    return sum(asked) if asked else None


def _longer_in(summary: RankSummary, number: int, window_ns: int) -> LongerIn | None:
    name, ns = summary.longer_in.get(number, ("", 0))
    return LongerIn(operator=name, ms=ns / 1e6) if name and ns >= _WORTH_NAMING * window_ns else None


def _stood(summary: RankSummary, number: int, window_ns: int) -> StoodStill | None:
    """Return where in the loop a rank's host does nothing recorded for longest in a step; None where that is not long.

    What it does there may run an operator now and then, as saving does: all of one place in the loop is one.
    """
    host = summary.host_evidence
    if host is None or number not in host.steps:
        return None
    at = host.steps.index(number)
    places: dict[str, list[PlacedGaps]] = {}
    for one in host.gaps.places:
        places.setdefault(one.within or one.opens or one.place.after, []).append(one)
    longest = max(places.values(), key=lambda own: sum(one.ns[at] for one in own), default=[])
    taken_ns = sum(one.ns[at] for one in longest)
    if not longest or taken_ns < _MUCH_OF_IT * window_ns:
        return None
    first = longest[0]
    collected_ns = sum(one.ns[at] for one in longest if one.place.is_collector)
    return StoodStill(
        ms=taken_ns / 1e6,
        before=first.opens or first.place.after,
        place=first.within,
        collects=2 * collected_ns >= taken_ns,
    )


def _milliseconds(part: Partition) -> dict[str, float]:
    return {
        "window_ms": part.window / 1e6,
        "compute_ms": part.compute / 1e6,
        "exposed_transfer_ms": part.transfer / 1e6,
        "exposed_wait_ms": part.wait / 1e6,
        "exposed_unsplit_ms": part.unsplit / 1e6,
        "exposed_memory_ms": part.memory / 1e6,
        "idle_data_ms": part.data / 1e6,
        "idle_launch_ms": part.launch / 1e6,
        "idle_queued_ms": part.queued / 1e6,
    }


def collective_row(
    index: int, match: Match, wait: MatchedWait | None, collectives: Mapping[int, Sequence[RankCollective]]
) -> Collective:
    """Return a matched collective; `wait`: None where its ranks' times do not tell who waited."""
    members = {rank: collectives[rank][at] for rank, at in match.members.items()}
    operation = next((one.operation for one in members.values() if one.operation is not None), "unknown")
    size = max((one.bytes for one in members.values() if one.bytes is not None), default=None)
    transfer_us = bus = None
    copies = any(one.by_copies for one in members.values())
    told = None if copies else wait
    if wait is not None:
        transfer_ns = members[wait.last].end - members[wait.last].start
        transfer_us = transfer_ns / 1e3
        ranks = match.group_size or 0
        factor = bus_factor(operation, ranks) if ranks > 1 else None
        if factor is not None and size and transfer_ns > 0:
            bus = size / transfer_ns * factor
    return Collective(
        index=index,
        operation=operation,
        bytes=size,
        dtype=next((one.dtype for one in members.values() if one.dtype is not None), None),
        group=match.group,
        group_size=match.group_size,
        step=next((one.step for one in members.values() if one.step is not None), None),
        transfer_us=transfer_us,
        wait_us={r: (told.ready[r] - one.start) / 1e3 for r, one in members.items()} if told else {},
        last_rank=told.last if told else None,
        bus_gb_s=bus,
        on_copy_engines=copies,
        over_windows=any(one.over_windows for one in members.values()),
        sparse=any(one.sparse for one in members.values()),
    )
