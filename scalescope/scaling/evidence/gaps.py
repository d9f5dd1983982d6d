"""Gaps of the host: stretches in which the threads that drive training begin and end nothing that is recorded.

Between two recorded instants Python runs, or nothing does: the thread sleeps, collects garbage, reads a file, waits for
a lock or for a core. A gap may lie inside an operator, as where a custom backward function sleeps. In a job on GPUs an
operator takes microseconds on the host, so a long stretch inside one is a gap too; on a CPU operators compute, and only
what lies outside of them, or in autograd's own frames and in functions of Python, is a gap. Runtime calls, loading data
and waiting for a collective are no gaps: they have names of their own.

Gaps are added up by their place, which is the same in every step and on every rank: the phase, the operators around it,
and the one that it lies in. Only so can a stall be told from what a place always takes.
"""

from typing import Literal, get_args

import msgspec
import numpy as np

from scalescope.scaling.evidence.host_calls import OBJECT_COLLECTIVES
from scalescope.scaling.evidence.host_timeline import COLLECTOR, SHORTEST_GAP_NS, HostTimeline, Mask, Spans
from scalescope.scaling.evidence.loop_places import LoopParts
from scalescope.scaling.finding.finding import LoopPlace
from scalescope.scaling.rank.records.callers import NO_CODE, OwnCode
from scalescope.scaling.trace.backward_calls import BACKWARD_CALL, BEFORE_CALL, LOOP_CALLS, backward_begins
from scalescope.scaling.trace.families import ENGINE_FRAMES
from scalescope.scaling.trace.intervals import Intervals, Ints, clip, covered_before, covers, distinct, union

#: So many places are kept a rank, those with the longest gaps, and of the others those that take most.
MOST_PLACES, MANY_PLACES = 28, 4
#: Of a place whose gaps are all shorter nobody asks where in the loop it is, ns.
_MAY_STALL_NS = 60_000
#: A place with so many gaps a step has several.
SEVERAL = 3

#: Where in a step a gap lies, in the order of a step.
Phase = Literal["before_first", "forward", "backward", "optimizer", "between", "after_last"]
PHASES: tuple[Phase, ...] = get_args(Phase)
_BEFORE, _FORWARD, _BACKWARD, _OPTIMIZER, _BETWEEN, _AFTER = range(6)

#: Of these the loop does nothing itself.
_PASSES: tuple[LoopPlace, ...] = ("in_forward", "in_backward", "in_optimizer")

NOTHING = ""  # before the first operator, after the last, outside of all


class GapLocation(msgspec.Struct, frozen=True, order=True):
    """Where a gap lies, in names that are the same on all ranks."""

    phase: Phase
    before: str  # the operator that began or ended last
    after: str  # the one that begins or ends next
    inside: str  # the innermost that is open meanwhile
    copies_follow: bool = False  # of a gap before the first operator: the device's next work is a copy of host memory

    @property
    def is_collector(self) -> bool:
        """Whether Python collects its garbage there, which is one place."""
        return self.inside == COLLECTOR


class PlacedGaps(msgspec.Struct, frozen=True, omit_defaults=True):
    """The gaps at one place."""

    place: GapLocation
    ns: tuple[int, ...]  # a step, all together
    longest_ns: tuple[int, ...]  # a step, of one
    count: int  # in all steps
    several: "SeveralGaps | None" = None  # of a place with several a step
    free_ns: tuple[int, ...] = ()  # on a CPU, a step: the longest that is no wait, nor waking up from one
    opens: str = ""  # what the loop calls at their end, where the operator after them is of that call's making
    within: LoopPlace | None = None  # where in the loop they lie
    line: str | None = None  # the function of the script that most of their time lies in


class SeveralGaps(msgspec.Struct, frozen=True, array_like=True):
    """What several gaps a step at one place are like."""

    counts: tuple[int, ...]  # a step
    typical_ns: int  # of one: the median in all steps, which a few long ones do not move
    elsewhere_ns: int  # of one at all other places, the same
    as_long_elsewhere: int  # how many there are at least half as long as the typical one here


class Gaps(msgspec.Struct, frozen=True):
    """A rank's gaps by place, the longest first; of the places that are left out no gap is longer than `floor_ns`."""

    places: tuple[PlacedGaps, ...]
    floor_ns: int


NO_GAPS = Gaps((), 0)


def quiet_stretches(host: HostTimeline) -> Intervals:
    """Return the stretches in the steps, at least SHORTEST_GAP_NS long, in which no thread does anything recorded.

    An operator may be open meanwhile, a runtime call may not.
    """
    start, end = host.still
    calls = host.calls
    begun = np.searchsorted(calls.start, start, side="right")
    inside = (start >= host.edges[0]) & (end <= host.edges[-1])
    inside &= begun == np.searchsorted(np.sort(calls.end), start, side="right")
    return Intervals(start[inside], end[inside])


def locate(host: HostTimeline, stretches: Intervals, loading: Intervals) -> "Located":
    """Tell where quiet stretches (disjoint) lie; operators inside `loading` are no part of the step's work."""
    step = host.step_of(stretches.starts)
    phase = _phases(host, stretches, step, loading)
    objects = np.array([name in OBJECT_COLLECTIVES.values() for name in host.names], bool)
    before, after = _neighbours(host.operators, stretches, objects)
    # what another step ended or begins with is no part of the place
    before[phase == _BEFORE] = -1
    after[phase == _AFTER] = -1
    inside = _insides(host.operators, stretches)
    # the collector is one place, wherever something was allocated that made Python collect
    collected = collects(host, stretches)
    if collected.any():
        phase[collected], before[collected], after[collected] = _BETWEEN, -1, -1
        inside[collected] = host.names.index(COLLECTOR)
    keys = np.stack([phase, before, after, inside])
    found, place = np.unique(keys, axis=1, return_inverse=True)
    computes = np.array([*_compute(host.names), False], bool)[inside]
    return Located(*stretches, step, place.reshape(-1).astype(np.int64), found, inside >= 0, computes)


def collects(host: HostTimeline, stretches: Intervals) -> Mask:
    """Tell in which stretches Python collects its garbage: each begins and ends where a collection does, or outside."""
    middle = (stretches.starts + stretches.ends) // 2
    return covers(host.collections, middle)


class Located(msgspec.Struct, frozen=True):
    """Quiet stretches, ascending, with their step and place."""

    starts: Ints
    ends: Ints
    step: Ints
    place: Ints  # column of `keys`
    keys: Ints  # (4, places): phase, and the names before, after and around; -1 for none
    inside: Mask  # whether an operator is open
    computes: Mask  # whether that one would compute on a CPU

    def of(self, chosen: Mask) -> "Located":
        """Return the stretches of a mask."""
        return Located(self.starts[chosen], self.ends[chosen], self.step[chosen], self.place[chosen], self.keys,
                       self.inside[chosen], self.computes[chosen])  # fmt: skip

    @property
    def intervals(self) -> Intervals:
        """Return them as a disjoint set."""
        return Intervals(self.starts, self.ends)


def _compute(names: list[str]) -> list[bool]:
    """Tell which operators compute on a CPU; autograd's nodes and Python's functions call others that do."""
    return ["::" in name and not name.startswith(ENGINE_FRAMES) for name in names]


def placed_gaps(
    host: HostTimeline, gaps: Located, first_copies: Mask, free: Mask | None = None, code: OwnCode = NO_CODE
) -> Gaps:
    """Add gaps up by place and step.

    `first_copies`: by step, whether the first work that is given to the device is a copy out of the host's memory.
    `free`: of each gap, whether it is no wait, nor waking up from one; None: that is not looked at. `code`: where a
    stall may be, it tells the script's own function.
    """
    if not gaps.starts.size:
        return NO_GAPS
    length = gaps.ends - gaps.starts
    table = np.zeros((gaps.keys.shape[1], len(host)), np.int64)
    longest = np.zeros_like(table)
    np.add.at(table, (gaps.place, gaps.step), length)
    np.maximum.at(longest, (gaps.place, gaps.step), length)
    freely = np.zeros_like(table)
    if free is not None:
        np.maximum.at(freely, (gaps.place[free], gaps.step[free]), length[free])
    each = np.zeros_like(table)
    np.add.at(each, (gaps.place, gaps.step), 1)
    counts = each.sum(axis=1)
    order = np.argsort(-longest.max(axis=1), kind="stable")
    kept, dropped = order[:MOST_PLACES], order[MOST_PLACES:]
    # many short ones at one place may take more than the longest of another
    many = dropped[np.argsort(-table[dropped].sum(axis=1), kind="stable")][:MANY_PLACES]
    kept, dropped = np.concatenate((kept, many)), np.setdiff1d(dropped, many)
    name = [*host.names, NOTHING]  # -1 is the last
    calls = host.annotations.of(host.named(LOOP_CALLS)[host.annotations.name])
    backward = backward_begins(host.operators.start, host.operators.end, host.operators.name, host.names)
    parts = LoopParts(host)
    threads = np.unique(host.operators.thread).tolist() if code else []
    places = []
    for row in kept[counts[kept] > 0].tolist():
        phase, before, after, inside = gaps.keys[:, row].tolist()
        copies = phase == _BEFORE and bool(first_copies.mean() > 0.5)
        place = GapLocation(PHASES[phase], name[before], name[after], name[inside], copies)
        sums, longests = tuple(table[row].tolist()), tuple(longest[row].tolist())
        several = None
        if counts[row] >= SEVERAL * len(host):
            here = gaps.place == row
            several = _several(length[here], length[~here], each[row])
        own = tuple(freely[row].tolist()) if free is not None else ()
        own_gaps = gaps.of(gaps.place == row).intervals
        opens = _opened(calls, own_gaps, host.names) or _opened_backward(backward, own_gaps)
        stalls = longest[row].max() >= _MAY_STALL_NS
        within = parts.place_of(own_gaps, first=phase == _BEFORE) if stalls else None
        in_pass = within in _PASSES
        line = code.during(own_gaps, host.loop, threads, in_pass=in_pass) if stalls else None
        places.append(PlacedGaps(place, sums, longests, int(counts[row]), several, own, opens, within, line))
    return Gaps(tuple(places), int(longest[dropped].max()) if dropped.size else 0)


def _opened(calls: Spans, gaps: Intervals, names: list[str]) -> str:
    """Return the call (ascending by start) that the gaps of a place lie before, by most of their time; "" for none."""
    if not len(calls):
        return NOTHING
    length = gaps.ends - gaps.starts
    at = np.searchsorted(calls.start, gaps.ends, side="right") - 1
    call = np.maximum(at, 0)
    before = (at >= 0) & (calls.end[call] >= gaps.ends) & (calls.start[call] - gaps.starts >= BEFORE_CALL * length)
    if length[before].sum() < BEFORE_CALL * length.sum():
        return NOTHING
    return names[int(calls.name[call[before][0]])]


def _opened_backward(begins: Ints, gaps: Intervals) -> str:
    """Return the name of a backward pass where the gaps of a place lie right before some, by most of their time."""
    length = gaps.ends - gaps.starts
    before = np.isin(gaps.ends, begins)
    return BACKWARD_CALL if length[before].sum() >= BEFORE_CALL * length.sum() else NOTHING


def _several(here: Ints, elsewhere: Ints, counts: Ints) -> SeveralGaps:
    typical = int(np.median(here))
    # what is shorter is not seen: beside many gaps here a few long ones elsewhere are not what is usual there
    unseen = np.full(max(0, here.size - elsewhere.size), SHORTEST_GAP_NS)
    usual = int(np.median(np.concatenate((elsewhere, unseen))))
    return SeveralGaps(tuple(counts.tolist()), typical, usual, int((2 * elsewhere >= typical).sum()))


def _phases(host: HostTimeline, gaps: Intervals, step: Ints, loading: Intervals) -> Ints:
    """Return the phase of each gap."""
    # nor does one that the loop runs between two steps, as to keep a loss: the last step of a window has none
    beside = covers(loading, host.operators.start) | covers(host.recording, host.operators.start)
    started, ended = host.operators.start[~beside], host.operators.end[~beside]
    engine = np.array([name.startswith(ENGINE_FRAMES) for name in host.names], bool)[host.operators.name[~beside]]
    optimizer = np.array([name.startswith("Optimizer.") for name in host.names], bool)[host.annotations.name]
    first, last = _reach(host, started, ended)
    begins, ends = _reach(host, started[engine], ended[engine])
    optimizing = union(host.annotations.of(optimizer).intervals)
    at = gaps.starts
    phase = np.full(at.size, _BETWEEN, np.int64)
    phase[at < begins[step]] = _FORWARD
    phase[(at >= begins[step]) & (at < ends[step])] = _BACKWARD
    phase[covered_before(optimizing, gaps.ends) - covered_before(optimizing, at) > (gaps.ends - at) // 2] = _OPTIMIZER
    phase[at >= last[step]] = _AFTER
    phase[gaps.ends <= first[step]] = _BEFORE
    return phase


def _reach(host: HostTimeline, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return when in each step the first of some operators (ascending) begins and the last ends; never, -1 for none."""
    first, last = np.full(len(host), np.iinfo(np.int64).max), np.full(len(host), -1)
    bounds = np.searchsorted(starts, host.edges)
    some = np.diff(bounds) > 0
    if some.any():
        first[some] = starts[bounds[:-1][some]]
        last[some] = np.maximum(np.maximum.reduceat(ends[: bounds[-1]], bounds[:-1][some]), -1)
    return first, last


def _neighbours(operators: Spans, gaps: Intervals, objects: Mask) -> tuple[Ints, Ints]:
    """Return the names of the operators that begin or end last before each gap, and next after it; -1 for none.

    `objects`: by name, whether it is a collective of objects, which ends with the last operator in it.
    """
    size = len(operators)
    nothing = np.full(gaps.starts.size, -1, np.int64)
    if not size:
        return nothing, nothing.copy()
    by_end = np.lexsort((objects[operators.name], operators.end))
    ended = operators.end[by_end]
    far = np.iinfo(np.int64).max
    begun = np.searchsorted(operators.start, gaps.starts, side="right") - 1
    over = np.searchsorted(ended, gaps.starts, side="right") - 1
    begun_at = np.where(begun >= 0, operators.start[begun], -1)
    over_at = np.where(over >= 0, ended[over], -1)
    before = np.where(over_at >= begun_at, operators.name[by_end[over]], operators.name[begun])
    before[(begun < 0) & (over < 0)] = -1
    begins = np.searchsorted(operators.start, gaps.ends, side="left")
    ends = np.searchsorted(ended, gaps.ends, side="left")
    begins_at = np.where(begins < size, operators.start[np.minimum(begins, size - 1)], far)
    ends_at = np.where(ends < size, ended[np.minimum(ends, size - 1)], far)
    after = np.where(
        ends_at <= begins_at,
        operators.name[by_end[np.minimum(ends, size - 1)]],
        operators.name[np.minimum(begins, size - 1)],
    )
    after[(begins == size) & (ends == size)] = -1
    return before, after


#: So many operators are looked at for the one that a gap lies in; first a few, for all gaps at once.
_FAR_BACK, _NEAR = 2_000, 16


def _insides(operators: Spans, gaps: Intervals) -> Ints:
    """Return the name of the innermost operator that is open during each gap, -1 for none."""
    found = np.full(gaps.starts.size, -1, np.int64)
    if not len(operators):
        return found
    last = np.searchsorted(operators.start, gaps.starts, side="right") - 1
    leaf = (last >= 0) & (operators.end[last] >= gaps.ends)
    found[leaf] = operators.name[last[leaf]]
    reach = np.maximum.accumulate(operators.end)
    open_ones = np.flatnonzero(~leaf & (last >= 0) & (reach[last] >= gaps.ends))
    near = last[open_ones, None] - np.arange(_NEAR)
    holds = (near >= 0) & (operators.end[np.maximum(near, 0)] >= gaps.ends[open_ones, None])
    held = holds.any(axis=1)
    found[open_ones[held]] = operators.name[near[held, holds[held].argmax(axis=1)]]
    open_ones = open_ones[~held]
    rows = zip(open_ones.tolist(), last[open_ones].tolist(), gaps.ends[open_ones].tolist(), strict=True)
    for index, row, end in rows:
        first = max(row - _FAR_BACK, -1) + 1
        around = np.flatnonzero(operators.end[first : row + 1] >= end)
        if around.size:
            found[index] = operators.name[first + around[-1]]
    return found


def without(stretches: Intervals, *taken: Intervals) -> Intervals:
    """Return what is left of stretches without what other things account for; neighbours stay apart.

    What is left is at least as long as a gap.
    """
    other = union(*taken)
    edges = distinct(np.concatenate((*stretches, *other)))
    starts, ends = edges[:-1], edges[1:]
    kept = covers(stretches, starts) & ~covers(other, starts) & (ends - starts >= SHORTEST_GAP_NS)
    return Intervals(starts[kept], ends[kept])


def inside_steps(host: HostTimeline, stretches: Intervals) -> Intervals:
    """Return what of stretches that do not overlap lies inside the steps, as a disjoint set."""
    return clip(union(stretches), int(host.edges[0]), int(host.edges[-1]))
