"""The steps that all ranks of a window hold, where their recordings began or ended at different ones.

Where one rank's recording ends before the others', those wait while it is written: their steps from there on are none
of the job's. And what one rank alone recorded stands beside nothing. So all figures are of the steps in common. Which
those are, numbers tell that the profiler gave: other steps are counted from the file's begin, and so are those of a
rank whose loop began to count elsewhere, which its collectives tell.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from scalescope.records.console import counted
from scalescope.scaling.answer import HeldSteps, SharedSteps, StepSource
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.ranks.clocks import host_offsets
from scalescope.scaling.ranks.gloo.groups_of_threads import name_groups
from scalescope.scaling.ranks.gloo.partners import name_partners
from scalescope.scaling.ranks.matching import Match, match_collectives, share_names
from scalescope.scaling.ranks.quality import ranks_of, sound
from scalescope.scaling.ranks.summary import RankSummary

#: What tells steps by a number that is the same on all ranks.
NUMBERED: tuple[StepSource, ...] = ("profiler", "step_annotation")
#: Of two ranks' collectives so many are in steps of two numbers, where ranks do not count them alike.
_OTHER_STEPS = 0.3
#: Of more recordings of different steps these are named.
_MOST_NAMED = 4


def common_steps(summaries: Mapping[int, RankSummary]) -> SharedSteps | None:
    """Return the steps that all ranks hold, where some hold others, too; None where that is not to be told.

    A rank that holds none of the others' steps has no say in it, nor has one that is in no mean.
    """
    counting = {rank: one for rank, one in sound(summaries).items() if one.shares is not None}
    held = {rank: _numbers(one) for rank, one in counting.items()}
    several = Counter(held.values())
    if len(several) < 2:
        return None
    if any(one.cut_off or one.evidence.steps not in NUMBERED for one in counting.values()):
        return None
    steps = {numbers: set(numbers) for numbers in several}
    beside = {
        one for one in several
        if several[one] > 1 or any(steps[one] & steps[other] for other in several if other is not one)
    }  # fmt: skip
    shared = set.intersection(*(steps[one] for one in beside)) if beside else set()
    if not shared:
        return None
    common = SharedSteps(
        first=min(shared),
        last=max(shared),
        held=[HeldSteps(rank, own[0], own[-1]) for rank, own in held.items() if own in beside],
    )
    return common if beyond(common) and not _counted_apart(counting) else None


def beyond(common: SharedSteps) -> list[int]:
    """Return the ranks that hold other steps, too."""
    return [one.rank for one in common.held if one.first < common.first or one.last > common.last]


def said_of_common(common: SharedSteps) -> str:
    """Return which ranks hold which steps, and of which of them all figures are."""
    ranks: dict[tuple[int, int], list[int]] = {}
    for one in common.held:
        ranks.setdefault((one.first, one.last), []).append(one.rank)
    named = [
        f"{ranks_of(own)} {_holds(own) if at == 0 else ''}{_called(*steps)}"
        for at, (steps, own) in enumerate(list(ranks.items())[:_MOST_NAMED])
    ]
    named += ["others other ones"] if len(ranks) > _MOST_NAMED else []
    count, who = common.last - common.first + 1, "both" if len(common.held) == 2 else "all"
    listed, same = f"{', '.join(named[:-1])} and {named[-1]}", _stretch(common.first, common.last)
    if count == 1:
        return f"{listed}: all figures are of step {same}, the only one that {who} hold"
    return f"{listed}: all figures are of the {counted(count, 'step')} that {who} hold, {same}"


def other_steps(
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


def name_collectives(summaries: Mapping[int, RankSummary]) -> None:
    """Give the ranks' collectives the names of their groups, and their partners, as far as all ranks together tell."""
    share_names({rank: one.collectives for rank, one in summaries.items()})
    name_groups(summaries)
    name_partners({rank: one.collectives for rank, one in summaries.items()})


def _counted_apart(summaries: Mapping[int, RankSummary]) -> bool:
    """Tell whether one number is of different steps on some of the ranks, by their collectives."""
    named = {  # what is named here is not read again
        rank: replace(one, collectives=[msgspec.structs.replace(each) for each in one.collectives])
        for rank, one in summaries.items()
    }
    name_collectives(named)
    collectives = {rank: one.collectives for rank, one in named.items()}
    clocks = host_offsets({rank: one.host for rank, one in named.items()}, collectives)
    return other_steps(match_collectives(collectives, clocks.offsets), collectives) is not None


def _numbers(summary: RankSummary) -> tuple[int, ...]:
    return tuple(summary.shares.windows.numbers) if summary.shares is not None else ()


def _stretch(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _called(first: int, last: int) -> str:
    return f"step{'s' if last > first else ''} {_stretch(first, last)}"


def _holds(ranks: Sequence[int]) -> str:
    return "holds " if len(ranks) == 1 else "hold "
