"""The steps that all ranks hold: side by side stands one step, not one place in a list."""

from collections.abc import Mapping, Sequence

from scalescope.scaling.rank.partition import Partition, total
from scalescope.scaling.ranks.summary import RankSummary


def why_no_factors(summaries: Mapping[int, RankSummary], partitions: Mapping[int, Sequence[Partition]]) -> str:
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


def in_common(summaries: Mapping[int, RankSummary], partitions: Mapping[int, Sequence[Partition]]) -> list[Partition]:
    """Return each rank's partition over the steps that all ranks hold; over all that it has where they share none.

    One rank's trace may end earlier than the others': what it lacks is no imbalance.
    """
    held = {rank: _numbers(summaries[rank]) for rank in partitions}
    shared = set.intersection(*map(set, held.values())) if held else set()
    return [
        total([step for number, step in zip(held[rank], steps, strict=True) if number in shared or not shared])
        for rank, steps in partitions.items()
    ]


def same_steps(
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
