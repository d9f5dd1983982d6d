"""One group's collectives of several ranks, aligned as sequences: which of them are at the same place.

What anchors an alignment is time: no member of a symmetric collective ends before the last one has started, so its
members overlap. Among all pairs that overlap and agree in operation, elements and dtype, the heaviest chain that keeps
both orders is taken; pairs of rooted collectives, which need not overlap, are filled in between anchors, in order, as
far as the root's times allow: nobody receives before it sends, and it is not through before all have sent. Where as
many of them lie between two symmetric ones on both sides, their order alone tells them apart, and no overlap: of two
broadcasts in a row, a rank's first may well run beside another's second.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from scalescope.records.operations import EVEN, FROM_ROOT, PAIRWISE, SYMMETRIC, TO_ROOT
from scalescope.scaling.rank.collective import SEND_HELD_UP_NS, RankCollective

#: Clocks of one host agree to tens of µs: so far apart can two members seem to lie that did overlap.
CLOCK_SLACK_NS = 50_000
#: Of transfers, so many offsets between two sequences are tried.
_MOST_OFFSETS = 64


class Slot(msgspec.Struct):
    """A match in the making: its members, and the time all of them share (or the gap that keeps them apart)."""

    members: dict[int, int]
    start: int
    end: int
    model: RankCollective  # the member that tells most about the content
    spans: dict[int, tuple[int, int]]  # by rank, of a rooted one: when each member ran


def align(
    collectives: Mapping[int, Sequence[RankCollective]],
    by_rank: Mapping[int, Sequence[int]],
    shift: Mapping[int, int],
) -> list[Slot]:
    """Align the ranks' sequences of one group, the longest first; every collective ends up in exactly one slot."""
    slots: list[Slot] = []
    for rank in sorted(by_rank, key=lambda rank: (-len(by_rank[rank]), rank)):
        own, offset = collectives[rank], shift.get(rank, 0)
        new = [_slot(rank, index, own[index], offset) for index in by_rank[rank]]
        slots = _merge(slots, new) if slots else new
    return slots


def _slot(rank: int, index: int, one: RankCollective, offset: int) -> Slot:
    start, end = one.start + offset, one.end + offset
    rooted = one.operation in FROM_ROOT or one.operation in TO_ROOT
    return Slot({rank: index}, start, end, one, {rank: (start, end)} if rooted else {})


def _merge(slots: list[Slot], new: list[Slot]) -> list[Slot]:
    """Merge one rank's sequence into the slots; what finds no partner becomes a slot of its own, in its place."""
    pairs = _pair_up(slots, new)
    new, pairs = _crossed(slots, new, pairs)
    new, pairs = _taken_up_in_another_order(slots, new, pairs)
    merged: list[Slot] = []
    at_slot = at_new = 0
    for left, right in [*pairs, (len(slots), len(new))]:
        merged.extend(sorted(slots[at_slot:left] + new[at_new:right], key=lambda slot: slot.start))
        at_slot, at_new = left + 1, right + 1
        if left < len(slots):
            slot, other = slots[left], new[right]
            slot.members |= other.members
            slot.spans |= other.spans
            slot.start, slot.end = sorted((max(slot.start, other.start), min(slot.end, other.end)))
            if _tells_more(other.model, slot.model):
                slot.model = other.model
            merged.append(slot)
    return merged


def _tells_more(one: RankCollective, than: RankCollective) -> bool:
    return (one.elements is not None, one.operation is not None) > (
        than.elements is not None,
        than.operation is not None,
    )


def _pair_up(slots: list[Slot], new: list[Slot]) -> list[tuple[int, int]]:
    """Return the pairs of positions that belong together, ascending in both."""
    if len(slots) == len(new) and all(_weight(left, right) >= 1.0 for left, right in zip(slots, new, strict=True)):
        return [(position, position) for position in range(len(new))]
    if (offset := _in_order(slots, new)) is not None:
        both = range(max(0, -offset), min(len(slots), len(new) - offset))
        return [(position, position + offset) for position in both]
    anchors = _by_order_between(slots, new, _heaviest_chain(sorted(_candidates(slots, new))))
    pairs: list[tuple[int, int]] = []
    at_slot = at_new = 0
    for left, right in [*anchors, (len(slots), len(new))]:
        pairs.extend(_fill(slots, new, range(at_slot, left), range(at_new, right), bool(anchors)))
        if left < len(slots):
            pairs.append((left, right))
        at_slot, at_new = left + 1, right + 1
    return pairs


def _taken_up_in_another_order(
    slots: list[Slot], new: list[Slot], pairs: list[tuple[int, int]]
) -> tuple[list[Slot], list[tuple[int, int]]]:
    """Return the new sequence with neighbours exchanged that then both have partners, and the pairs.

    gloo's threads take up what was handed over in a row at once: which of two begins first is another on each rank.
    """
    paired_left, paired_new = {left for left, _ in pairs}, {right for _, right in pairs}
    new, found = list(new), []
    for left, right in pairs:
        found.append((left, right))
        for step in (1, -1):
            one, other = left + step, right + step
            if (
                0 <= one < len(slots) and 0 <= other < len(new)
                and one not in paired_left and other not in paired_new
                and all(slot.model.sequence is None and slot.model.operation in SYMMETRIC
                        for slot in (slots[left], slots[one], new[right], new[other]))
                and min(_weight(slots[left], new[other]), _weight(slots[one], new[right])) >= 1.0
            ):  # fmt: skip
                new[right], new[other] = new[other], new[right]
                paired_left.add(one)
                paired_new.add(other)
                found.append((one, other))
                break
    return new, sorted(found)


def _crossed(
    slots: list[Slot], new: list[Slot], pairs: list[tuple[int, int]]
) -> tuple[list[Slot], list[tuple[int, int]]]:
    """Return the new sequence with neighbours exchanged that partners have the other way round, and the pairs.

    Of two in a row that gloo's threads take up at once, a chain that keeps both orders has one: what stands before it
    here and behind it there is the other, where both run at once.
    """
    paired_left, paired_new = {left for left, _ in pairs}, {right for _, right in pairs}
    new, found = list(new), []
    for left, right in pairs:
        for step in (1, -1):
            one, other = left - step, right + step
            if (
                0 <= one < len(slots) and 0 <= other < len(new)
                and one not in paired_left and other not in paired_new
                and all(slot.model.sequence is None and slot.model.operation not in PAIRWISE
                        for slot in (slots[left], slots[one], new[right], new[other]))
                and _weight(slots[one], new[other]) >= 1.0
            ):  # fmt: skip
                new[right], new[other] = new[other], new[right]
                paired_left.add(one)
                paired_new.add(other)
                found += [(one, right), (left, other)]
                break
        else:
            found.append((left, right))
    return new, sorted(found)


def _by_order_between(slots: list[Slot], new: list[Slot], anchors: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the anchors, with rooted collectives paired by order between symmetric ones that hold as many of them."""
    fixed = [(left, right) for left, right in anchors if slots[left].model.operation in SYMMETRIC]
    if not fixed or any(slot.model.sequence is not None for slot in (*slots, *new)):
        return anchors
    found: list[tuple[int, int]] = []
    before_slot = before_new = -1
    for left, right in [*fixed, (len(slots), len(new))]:
        between = list(zip(range(before_slot + 1, left), range(before_new + 1, right), strict=False))
        alike = left - before_slot == right - before_new and all(
            slots[one].model.operation not in SYMMETRIC
            and compatible(slots[one].model, new[other].model)
            and not _against_its_root(slots[one], new[other])
            for one, other in between
        )
        found += between if alike else [pair for pair in anchors if before_slot < pair[0] < left]
        found += [(left, right)] if left < len(slots) else []
        before_slot, before_new = left, right
    return found


def _in_order(slots: list[Slot], new: list[Slot]) -> int | None:
    """Return how much later in the one sequence of transfers its partner stands in the other.

    What one rank sends to another arrives in order: only how many the windows cut off is open. A small message may be
    gone before its receiver asks for it, so that time says no more than that nothing is received before it is sent.
    None where that holds for no offset, and for what are no transfers between two ranks that say who sends.
    """
    model = slots[0].model
    ends = {rank for slot in (slots[0], new[0]) for rank in slot.members}
    if model.operation not in PAIRWISE or model.source is None or len(ends) != 2:
        return None
    sender = model.group_ranks[model.source] if model.source < len(model.group_ranks) else model.source
    if sender not in ends or any(slot.model.sequence is not None for slot in (*slots, *new)):
        return None
    sends_left = sender in slots[0].members
    surplus = len(new) - len(slots)
    found: list[tuple[float, int]] = []
    for offset in range(min(0, surplus), max(0, surplus) + 1)[:_MOST_OFFSETS]:
        pairs = list(zip(slots[max(0, -offset) :], new[max(0, offset) :], strict=False))
        ways = [(left, right) if sends_left else (right, left) for left, right in pairs]
        if all(receive.end + SEND_HELD_UP_NS >= send.start and compatible(send.model, receive.model)
               for send, receive in ways):  # fmt: skip
            found.append((sum(_weight(left, right) for left, right in pairs), -offset))
    return -max(found)[1] if found else None


def _candidates(slots: list[Slot], new: list[Slot]) -> Iterator[tuple[int, int, float]]:
    """Yield the pairs that can be one collective: same sequence number, or near enough in time; with their weight."""
    by_sequence: dict[int, list[int]] = {}
    for position, slot in enumerate(slots):
        if slot.model.sequence is not None:
            by_sequence.setdefault(slot.model.sequence, []).append(position)
    # ends of concurrent collectives are not sorted, so the scan starts where the longest one can still reach
    longest = max((slot.end - slot.start for slot in slots), default=0) + CLOCK_SLACK_NS
    starts = [slot.start for slot in slots]
    if any(later < earlier for earlier, later in pairwise(starts)):
        starts = _running_minimum(starts)
    for right, one in enumerate(new):
        seen: set[int] = set()
        if one.model.sequence is not None:
            for left in by_sequence.get(one.model.sequence, ()):
                seen.add(left)
                if (weight := _weight(slots[left], one)) > 0:
                    yield left, right, weight
        left = bisect_left(starts, one.start - longest)
        while left < len(slots) and starts[left] <= one.end + CLOCK_SLACK_NS:
            if left not in seen and (weight := _weight(slots[left], one)) > 0:
                yield left, right, weight
            left += 1


def _running_minimum(values: list[int]) -> list[int]:
    """Make values ascend by lowering those that a smaller one follows, so that a search from below misses none."""
    lowered = list(values)
    for position in range(len(lowered) - 2, -1, -1):
        lowered[position] = min(lowered[position], lowered[position + 1])
    return lowered


def _weight(slot: Slot, one: Slot) -> float:
    """Return what speaks for a pair: 0 nothing, up to 0.5 near in time, 1 to 2 overlapping, 4 one sequence number."""
    left, right = slot.model, one.model
    if not compatible(left, right) or _against_its_root(slot, one):
        return 0.0
    if left.sequence is not None and right.sequence is not None:
        return 4.0 if left.sequence == right.sequence else 0.0
    overlap = min(slot.end, one.end) - max(slot.start, one.start)
    if overlap > 0:
        return 1.0 + overlap / max(1, min(slot.end - slot.start, one.end - one.start))
    return 0.5 * (1.0 + overlap / CLOCK_SLACK_NS) if overlap > -CLOCK_SLACK_NS else 0.0


def compatible(left: RankCollective, right: RankCollective) -> bool:
    """Tell whether two descriptions can be of one collective; what one of them does not tell contradicts nothing."""
    if left.operation is not None and right.operation is not None and left.operation != right.operation:
        return False
    if left.dtype is not None and right.dtype is not None and left.dtype != right.dtype:
        return False
    if left.root is not None and right.root is not None and left.root != right.root:
        return False
    if (left.operation or right.operation) not in EVEN:
        return True
    return left.elements is None or right.elements is None or left.elements == right.elements


def _against_its_root(slot: Slot, one: Slot) -> bool:
    """Tell whether the root's times forbid that two descriptions are of one rooted collective.

    What a root sends has not arrived before it began, and a root that receives does not end before the last began.
    """
    model = next((own.model for own in (slot, one) if own.model.root is not None and own.model.group_ranks), None)
    if model is None or model.root is None or model.root >= len(model.group_ranks):
        return False
    spans = slot.spans | one.spans
    root = spans.pop(model.group_ranks[model.root], None)
    if root is None:
        return False
    if model.operation in FROM_ROOT:
        return any(end < root[0] - CLOCK_SLACK_NS for _, end in spans.values())
    return model.operation in TO_ROOT and any(start > root[1] + CLOCK_SLACK_NS for start, _ in spans.values())


def _heaviest_chain(candidates: list[tuple[int, int, float]]) -> list[tuple[int, int]]:
    """Return the heaviest set of pairs in which both positions strictly ascend.

    A maximum over prefixes (a Fenwick tree) holds the best chain that ends at or before each position of the new
    sequence, so that the whole takes p·log(p) for p pairs.
    """
    if not candidates:
        return []
    width = max(right for _, right, _ in candidates) + 1
    best: list[tuple[float, int]] = [(0.0, -1)] * (width + 1)  # by tree node: weight, and the pair that ends the chain
    before = [-1] * len(candidates)
    at = 0
    while at < len(candidates):
        # pairs of one left position must not follow each other: look all up, then enter all
        until = at
        while until < len(candidates) and candidates[until][0] == candidates[at][0]:
            until += 1
        entered = []
        for index in range(at, until):
            _, right, weight = candidates[index]
            chain = (0.0, -1)
            node = right
            while node > 0:
                chain = max(chain, best[node])
                node &= node - 1
            before[index] = chain[1]
            entered.append((chain[0] + weight, index))
        for total, index in entered:
            node = candidates[index][1] + 1
            while node <= width:
                best[node] = max(best[node], (total, index))
                node += node & -node
        at = until
    chain = (0.0, -1)
    node = width
    while node > 0:
        chain = max(chain, best[node])
        node &= node - 1
    pairs = []
    index = chain[1]
    while index >= 0:
        pairs.append((candidates[index][0], candidates[index][1]))
        index = before[index]
    return pairs[::-1]


def _fill(slots: list[Slot], new: list[Slot], left: range, right: range, anchored: bool) -> list[tuple[int, int]]:
    """Pair what lies between two anchors by order, where time cannot tell: rooted collectives and transfers.

    Before the first anchor they are paired backwards from it, so that what a window cut off is left over at the edge.
    """
    if not left or not right or not anchored:
        return []
    lefts, rights = list(left), list(right)
    backwards = left.start == 0 and right.start == 0
    if backwards:
        lefts.reverse()
        rights.reverse()
    pairs = []
    at = 0
    for position in lefts:
        slot = slots[position]
        if slot.model.operation in SYMMETRIC:
            continue
        for step in range(at, len(rights)):
            one = new[rights[step]]
            same_number = slot.model.sequence == one.model.sequence or None in (slot.model.sequence, one.model.sequence)
            if (
                one.model.operation not in SYMMETRIC
                and same_number
                and compatible(slot.model, one.model)
                and not _against_its_root(slot, one)
            ):
                pairs.append((position, rights[step]))
                at = step + 1
                break
    return pairs[::-1] if backwards else pairs
