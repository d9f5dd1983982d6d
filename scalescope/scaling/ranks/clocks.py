"""Whose clock is ahead: offsets between hosts, from the symmetric collectives.

On one host the ranks' clocks agree to tens of µs and nothing is corrected. Across hosts, each symmetric collective
bounds the offset: no member ends before the last one has started. With o added to host h's clock, a member on h and one
on the reference host give start_ref - end_h ≤ o ≤ end_ref - start_h; the intersection over all collectives is where the
offset must lie. Within it, the offset at which members end together is taken, since they do so within µs.

Old traces name no host (torch before 2.13). Their ranks are taken to share one clock, but for those whose collectives
only a difference of clocks brings together with the first one's, or all end earlier or later than the first one's by
the same time (timing.py).
"""

import statistics
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec
import numpy as np

from scalescope.records.operations import SYMMETRIC
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.ranks.alignment import CLOCK_SLACK_NS
from scalescope.scaling.ranks.matching import match_collectives
from scalescope.scaling.ranks.timing import Timed, clocks_agree, timing_of, token

#: Spreads of the ends of matched collectives, over their count, that differ by less do not tell lags apart: members of
#: one end together within µs, over a slow link within a part of the transfer.
_EQUAL_NS = 100.0
_EQUAL_SHARE = 0.5
#: Lags that pair fewer collectives than this share of the best one are no rivals to it; window cuts cost a few.
_MOST_PAIRED = 0.8
#: Of the ranks before it, so many are looked at, and so many that tell are asked, for one that shares a rank's clock.
_LOOKED_AT, _ASKED = 64, 4
#: Of two ranks' collectives, so many of each are tried at every lag.
_LAID_SIDE_BY_SIDE = 256
#: No host whose clock is set, if only by NTP, is off by more.
_SET_NS = 1_000_000_000


class Clocks(msgspec.Struct, frozen=True):
    """What to add to each rank's times, in ns, and how sure that is."""

    offsets: dict[int, int] = {}
    half_interval_ns: dict[str, int] = {}  # by host; a skew smaller than this says nothing
    reasons: list[str] = []

    @property
    def apart_ms(self) -> float | None:
        """By how much they differ, where that is more than clocks do that are set; else None."""
        most = max(self.offsets.values(), default=0) - min(self.offsets.values(), default=0)
        return most / 1e6 if most > _SET_NS else None


def host_offsets(hosts: Mapping[int, str], collectives: Mapping[int, Sequence[RankCollective]]) -> Clocks:
    """Return the offsets of all ranks towards the first rank's host; none where all ranks are on one host."""
    hosts = _with_own_clocks(hosts, collectives)
    # a trace that names no host says nothing against being on the same one
    named = set(hosts.values()) - {""}
    names = sorted(named, key=lambda host: min(rank for rank in hosts if hosts[rank] == host))
    if len(names) < 2:
        return Clocks()
    reference = min(rank for rank in hosts if hosts[rank] == names[0])
    offsets = {rank: 0 for rank in hosts if hosts[rank] in (names[0], "")}
    half: dict[str, int] = {}
    reasons: list[str] = []
    for host in names[1:]:
        ranks = sorted(rank for rank in hosts if hosts[rank] == host)
        rough = _rough_offset(collectives[reference], [collectives[rank] for rank in ranks])
        bounds = _bounds(reference, ranks[0], collectives, rough) if rough is not None else None
        if bounds is None:
            offsets |= dict.fromkeys(ranks, 0)
            reasons.append(
                f"host {host}: no collectives shared with host {names[0]}, so its clock is taken as it stands"
            )
            continue
        low, high, together = bounds
        # members end together within µs, which is sharper than the middle of the bounds: a rank that always comes last
        # shifts that towards itself
        offset = together if low <= together <= high else (low + high) // 2
        half[host] = max(offset - low, high - offset)
        offsets |= dict.fromkeys(ranks, offset)
        if high < low:
            reasons.append(
                f"host {host}: its clock drifts against host {names[0]}'s by {(low - high) / 1e3:.0f} µs in the window"
            )
        else:
            reasons.append(
                f"host {host}: clock {offset / 1e3:+.0f} ± {half[host] / 1e3:.0f} µs against host {names[0]}, "
                "from the collectives; a smaller wait between the hosts says nothing"
            )
    return Clocks(offsets, half, reasons)


def _with_own_clocks(
    hosts: Mapping[int, str], collectives: Mapping[int, Sequence[RankCollective]]
) -> Mapping[int, str]:
    """Return the ranks' hosts; where no trace names one, a name for each clock that their collectives tell of."""
    if len(hosts) < 2 or any(hosts.values()):
        return hosts
    timed = {rank: Timed(rank, collectives[rank]) for rank in sorted(hosts)}
    told: dict[int, int] = {}  # by rank: the first rank of its clock
    for rank, one in timed.items():
        known = [(first, timed[other]) for other, first in islice(told.items(), _LOOKED_AT)]
        told[rank] = _first_of_its_clock(one, known)
    return {rank: f"of rank {first}" for rank, first in told.items()} if len(set(told.values())) > 1 else hosts


def _first_of_its_clock(one: Timed, known: Sequence[tuple[int, Timed]]) -> int:
    """Return the first rank of a rank's clock, given some others with theirs: its own where those that tell say so.

    Of a mesh not every rank shares a group with it; of those that do, a few are asked.
    """
    asked = 0
    for first, other in known:
        timing = timing_of(other, one)
        if timing == "apart" or (timing == "together" and _on_one_clock(other, one)):
            return first
        asked += timing is not None
        if asked == _ASKED:
            break
    return one.rank if asked or not known else known[0][0]


def _on_one_clock(left: Timed, right: Timed) -> bool:
    """Tell whether two ranks whose collectives ran at the same times, or nearly, share a clock; where no other offset
    brings them together either, the clock is not to blame for what has no partner.
    """
    if clocks_agree(left, right):
        return True
    rough = _rough_offset(left.own[:_LAID_SIDE_BY_SIDE], [right.own[:_LAID_SIDE_BY_SIDE]])
    return rough is None or abs(rough) <= CLOCK_SLACK_NS


def _symmetric(own: Sequence[RankCollective]) -> list[RankCollective]:
    return sorted(
        (one for one in own if one.operation in SYMMETRIC and one.elements is not None), key=lambda one: one.start
    )


def _rough_offset(reference: Sequence[RankCollective], others: Sequence[Sequence[RankCollective]]) -> int | None:
    """Return the offset at which the ends of equal collectives agree best: members of one end together, within µs."""
    left = _symmetric(reference)
    right = _symmetric(others[0])
    if not left or not right:
        return None
    tokens_left, tokens_right = [token(one) for one in left], [token(one) for one in right]
    ends_left = np.array([one.end for one in left], np.int64)
    ends_right = np.array([one.end for one in right], np.int64)
    durations_left = np.array([one.end - one.start for one in left], np.int64)
    durations_right = np.array([one.end - one.start for one in right], np.int64)
    candidates: list[tuple[float, int, int]] = []
    equal = _EQUAL_NS
    for lag in range(-len(right) + 1, len(left)):
        first, last = max(0, lag), min(len(left), len(right) + lag)
        agree = [tokens_left[at] == tokens_right[at - lag] for at in range(first, last)]
        count = sum(agree)
        if count < max(2, min(len(left), len(right)) // 2) or count < 0.9 * len(agree):
            continue
        difference = (ends_left[first:last] - ends_right[first - lag : last - lag])[np.array(agree)]
        middle = int(np.median(difference))
        spread = float(np.median(np.abs(difference - middle))) / count
        candidates.append((spread, count, middle))
        transfer = np.minimum(durations_left[first:last], durations_right[first - lag : last - lag])  # the later one's
        equal = max(equal, _EQUAL_SHARE * float(np.median(transfer)) / count)
    if not candidates:
        return None
    # steps repeat, so a lag of a whole step agrees nearly as well: of equals, one that leaves few collectives without
    # a partner, and of those the one nearest to clocks that are right
    best = min(spread for spread, _, _ in candidates)
    equals = [(count, middle) for spread, count, middle in candidates if spread <= 2 * best + equal]
    most = max(count for count, _ in equals)
    return min((middle for count, middle in equals if count >= _MOST_PAIRED * most), key=abs)


def _bounds(
    reference: int, rank: int, collectives: Mapping[int, Sequence[RankCollective]], rough: int
) -> tuple[int, int, int] | None:
    """Return the least and the largest offset that matched collectives allow, and the one that ends them together."""
    pair = {reference: collectives[reference], rank: collectives[rank]}
    low, high = None, None
    ends = []
    for match in match_collectives(pair, {rank: rough}):
        if len(match.members) < 2:
            continue
        here, there = pair[reference][match.members[reference]], pair[rank][match.members[rank]]
        if here.operation not in SYMMETRIC:
            continue
        ends.append(here.end - there.end)
        low = max(here.start - there.end, low) if low is not None else here.start - there.end
        high = min(here.end - there.start, high) if high is not None else here.end - there.start
    return None if low is None or high is None else (low, high, int(statistics.median_low(ends)))
