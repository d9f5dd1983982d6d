"""Whether two ranks' collectives ran together: at the same times, at the same times by clocks that differ, or never.

No member of a symmetric collective ends before the last one has started, so its members overlap in time. Where two
ranks' windows hold such collectives of one group and hardly any of them overlap, either a clock is off or the windows
are not of the same steps. A clock that is off is off by the same time in each of them: one offset brings all of them
together. Where none does, no clock is to blame. A clock may be off by less than collectives last, so that they
overlap all the same: then members, which end within µs of each other, all end late on one rank by the same time.
Steps that are as even as those of a convolutional network repeat within microseconds: there one offset may bring
another window's collectives together, too, and the two cannot be told apart by times.
"""

import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Literal

import numpy as np

from scalescope.records.operations import EVEN, SYMMETRIC
from scalescope.scaling.rank.collective import ASSUMED_GROUP, RankCollective
from scalescope.scaling.ranks.alignment import CLOCK_SLACK_NS

#: `together`: by the clocks as they stand. `offset`: by clocks that differ. `apart`: never.
Timing = Literal["together", "offset", "apart"]

#: Fewer collectives in common tell nothing.
_TELLING = 10
#: Of those within the time that both windows share, all overlap in one job, but for what a profiler lost of one of
#: them; of two equal jobs whose windows were moved onto each other, up to two thirds by chance.
_TOGETHER = 0.9
#: Most of what there is.
_MOST = 0.5
#: One offset explains all that it can, but for what the windows cut off.
_EXPLAINED = 0.9
#: On one clock nearly all have a partner at their time: profilers lose a few.
_ONE_CLOCK = 0.95
#: Where ends differ by more than this part of the transfer, over and above their own spread, that is a clock's doing: a
#: message comes over a slow link in pieces, of which the last reaches one member after the other.
_OF_TRANSFER, _OF_SPREAD = 0.1, 4.0
#: Overlap is told by so many of them, which lie evenly in the window.
_SAMPLE = 64
#: An offset is tried on so many: two windows' cuts differ by few.
_TRIED = 256

_Token = tuple[str | None, tuple[int, ...], str | None, int | None, str | None]


@dataclass(frozen=True)
class Timed:
    """One rank's symmetric collectives whose times are known, in order."""

    rank: int
    collectives: Sequence[RankCollective]

    @cached_property
    def own(self) -> list[RankCollective]:
        timed = (one for one in self.collectives if one.operation in SYMMETRIC and one.end > one.start)
        return sorted(timed, key=lambda one: one.start)

    @cached_property
    def tokens(self) -> list[_Token]:
        return [token(one) for one in self.own]

    @cached_property
    def starts(self) -> list[int]:
        return [one.start for one in self.own]

    @cached_property
    def latest_ends(self) -> list[int]:
        """Return of each the latest end of those up to it."""
        return list(accumulate((one.end for one in self.own), max))

    @cached_property
    def of_groups(self) -> list[tuple[frozenset[int] | None, int]]:
        """Return how many there are of each group, by its ranks; None for one of which all ranks are."""
        counts = Counter((one.group == ASSUMED_GROUP, one.group_ranks) for one in self.own)
        return [(None if everybody else frozenset(ranks), count) for (everybody, ranks), count in counts.items()]

    @cached_property
    def partners(self) -> frozenset[int] | None:
        """The ranks of all its groups; None where all ranks are."""
        groups = [ranks for ranks, _ in self.of_groups]
        return None if None in groups else frozenset().union(*(ranks for ranks in groups if ranks is not None))

    def shared_with(self, rank: int) -> int:
        """Return how many are of groups that another rank is in, too."""
        return sum(count for ranks, count in self.of_groups if ranks is None or rank in ranks)


def token(one: RankCollective) -> _Token:
    """Return what a collective has in common with its other members."""
    elements = one.elements if one.operation in EVEN else None  # of an uneven all_to_all each member has its own
    return one.group, one.group_ranks, one.operation, elements, one.dtype


def timing_of(left: Timed, right: Timed) -> Timing | None:
    """Return how two ranks' collectives ran; None where too few are in common."""
    if min(left.shared_with(right.rank), right.shared_with(left.rank)) < _TELLING:
        return None  # as of most pairs of a large mesh: told by their groups, not one by one
    left, right = _in_common(left, right.rank), _in_common(right, left.rank)
    # what one rank's trace lacks of the other's has no partner, and the rest has
    if _overlapping(left, right) >= _TOGETHER or _overlapping(right, left) >= _TOGETHER:
        return "together"
    if (Counter(left.tokens) & Counter(right.tokens)).total() < _TELLING:
        return None
    return "offset" if _one_offset_explains(left, right) else "apart"


def clocks_agree(left: Timed, right: Timed) -> bool:
    """Tell whether the collectives that two ranks both hold ended at the same times, as they do on one clock."""
    left, right = _in_common(left, right.rank), _in_common(right, left.rank)
    begin = max(left.starts[0], right.starts[0])
    end = min(left.latest_ends[-1], right.latest_ends[-1])
    inside = [one for one in left.own if one.start < end and one.end > begin]
    chosen = inside[:: max(1, len(inside) // _SAMPLE)]
    met = [(one, partner) for one in chosen if (partner := _partner(one, right)) is not None]
    differences = np.array([one.end - partner.end for one, partner in met], np.int64)
    if len(met) < max(_TELLING, _ONE_CLOCK * len(chosen)):
        # of a few, one that was lost is many: ends that agree for most are no chance all the same
        agree = int((np.abs(differences) <= CLOCK_SLACK_NS).sum())
        return len(chosen) < _TELLING or agree >= _MOST * len(chosen)
    transfer = statistics.median(min(one.end - one.start, partner.end - partner.start) for one, partner in met)
    middle = float(np.median(differences))
    spread = float(np.median(np.abs(differences - middle)))
    return abs(middle) <= max(CLOCK_SLACK_NS, _OF_SPREAD * spread, _OF_TRANSFER * transfer)


def _in_common(one: Timed, other: int) -> Timed:
    """Return of a rank's collectives those of groups that hold another rank, too."""
    if one.shared_with(other) == len(one.own):
        return one  # as in most jobs: what is worked out for it holds for each other rank
    holds = {ranks: other in ranks for ranks in {call.group_ranks for call in one.own}}
    return Timed(one.rank, [call for call in one.own if holds[call.group_ranks] or call.group == ASSUMED_GROUP])


def _overlapping(left: Timed, right: Timed) -> float:
    """Return of the collectives within the time that both windows share, the share that an equal one overlaps."""
    begin = max(left.starts[0], right.starts[0])
    end = min(left.latest_ends[-1], right.latest_ends[-1])
    inside = [at for at, call in enumerate(left.own) if call.start < end and call.end > begin]
    if not inside:
        return 0.0
    chosen = inside[:: max(1, len(inside) // _SAMPLE)]
    return sum(_is_met(left.own[at], right) for at in chosen) / len(chosen)


def _is_met(call: RankCollective, right: Timed) -> bool:
    """Tell whether an equal collective of the other rank runs at the same time."""
    return next(_meeting(call, right), None) is not None


def _partner(call: RankCollective, right: Timed) -> RankCollective | None:
    """Return the equal collective of the other rank that runs at the same time; of several, which ends nearest."""
    return min(_meeting(call, right), key=lambda other: abs(other.end - call.end), default=None)


def _meeting(call: RankCollective, right: Timed) -> Iterator[RankCollective]:
    """Yield the equal collectives of the other rank that run at the same time."""
    position, wanted = bisect_left(right.starts, call.end) - 1, token(call)
    while position >= 0 and right.latest_ends[position] > call.start:
        other = right.own[position]
        if other.end > call.start and right.tokens[position] == wanted:
            yield other
        position -= 1


def _one_offset_explains(left: Timed, right: Timed) -> bool:
    """Tell whether one difference of the clocks lets nearly all collectives overlap, in their order."""
    starts, ends = (
        [np.array([getattr(call, name) for call in one.own], np.int64) for one in (left, right)]
        for name in ("start", "end")
    )
    for first, last, lag in _lags(left, right):
        own, other = slice(first, last), slice(first - lag, last - lag)
        offset = int(np.median(ends[0][own] - ends[1][other]))  # members end together
        overlap = np.minimum(ends[0][own], ends[1][other] + offset) > np.maximum(
            starts[0][own], starts[1][other] + offset
        )
        if overlap.mean() >= _EXPLAINED:
            return True
    return False


def _lags(left: Timed, right: Timed) -> Iterator[tuple[int, int, int]]:
    """Yield the stretches of the left sequence that an equal stretch of the right one can be, with how far it lags."""
    left_tokens, right_tokens = left.tokens[:_TRIED], right.tokens[:_TRIED]
    least = max(_TELLING, min(len(left_tokens), len(right_tokens)) // 2)
    for lag in range(-len(right_tokens) + least, len(left_tokens) - least + 1):
        first, last = max(0, lag), min(len(left_tokens), len(right_tokens) + lag)
        equal = sum(left_tokens[at] == right_tokens[at - lag] for at in range(first, last))
        if equal >= _EXPLAINED * (last - first):
            yield first, last, lag
