"""Where a host does nothing for longer than that place takes on the other ranks.

A gap is compared with the gaps at the same place on the other ranks, as long as those would be on a host as slow as
this one: all of a slow host's gaps are longer, and none of them is a stall. The same place is one between the same two
operators, or, where a rank runs something of its own there, one before or after the same operator. A place that all
ranks stay at for long is told where it takes a large share of the step; such a stall is nobody's own, though one of
them may be there for longer, as where ranks wait for a lock by turns.

Many short gaps are a stall as well where a host stands still nearly whenever it comes to a place, as in a hook on each
gradient or in logging after each layer: however far apart the longest of them are, which other processes on its cores
make longer by chance, the typical one is long, and each step has about as many. Of all ranks it is none where it lies
in one of torch's own operators that calls no other: no Python runs there, and what takes so long is the operator, as
where cuBLASLt chooses an algorithm at each call.

A collective of Python objects stands still at several places, where it pickles and where it unpickles. These are one
stall, and one with a name: it is told however little of it lies at each of them.

A gap before a step's first operator may be loading that nobody annotated. It is, probably, where what the host then
gives to the device first is a batch: a copy out of the host's memory.
"""

from collections.abc import Iterable, Mapping, Set

import msgspec
import numpy as np

from scalescope.records.statistics import largest_of_others
from scalescope.scaling.evidence.causes.common_steps import CommonSteps
from scalescope.scaling.evidence.causes.punctual import is_punctual
from scalescope.scaling.evidence.gaps import SEVERAL, GapLocation, PlacedGaps
from scalescope.scaling.evidence.host_calls import OBJECT_COLLECTIVES
from scalescope.scaling.evidence.host_cause import HostCause, HostFigure, line_of_all
from scalescope.scaling.evidence.host_timeline import SHORTEST_GAP_NS
from scalescope.scaling.finding.finding import LoopPlace
from scalescope.scaling.trace.intervals import Ints

#: The share of a step that a stall takes at least, in three quarters of the steps: on one rank, and on all alike.
_SHARE = 0.004
_SHARE_OF_ALL = 0.05
_LEAST_OF_ALL_NS = 500_000
#: The same for a collective of Python objects: who stands still there pickles, and is not just slow at launching.
_SHARE_OF_OBJECTS = 0.01
#: A place in whichever pass: the operators before and after it, and the one around it.
_Anywhere = tuple[str, str, str]
_OF_OBJECTS = frozenset(OBJECT_COLLECTIVES.values())
#: One gap of a stall is at least so long, ns, and so many times as long as the others' longest at that place.
_LEAST_NS = 60_000
_TIMES = 3.0
#: A host stands still whenever it comes to a place where the step with fewest such gaps has as many as the one with
#: most, or nearly; or, as waits for a collective may hide some, so much of them, and no more as long are elsewhere.
_AS_MANY, _SOME = 0.9, 0.25
#: Of all ranks, such gaps are so many times as long as those at other places: else it is Python, or launching.
_TIMES_ELSEWHERE = 5.0
#: … but outside of the model, its backward pass and the optimizer, where no library has Python between its operators: a
#: loop that formats each parameter for a log stood still 75 times a step for 0.07 to 0.15 ms, 11 of 150 ms in all.
_TIMES_OUTSIDE = 1.5
_OUTSIDE: tuple[LoopPlace, ...] = (
    "after_backward", "after_optimizer", "optimizer_to_forward", "backward_to_forward", "before_first"
)  # fmt: skip

#: Of a window of more steps than these, what its last one does not show says nothing of the others.
FEWEST = 2

#: Operators of torch itself, whose code is not Python.
_NATIVE = "aten::"


def stall_causes(common: CommonSteps) -> list[HostCause]:
    """Return a cause for each rank and place of a stall, and for each place at which all ranks stall."""
    slowness = _slowness(common)
    floors = [-one.gaps.floor_ns for one in common.by_rank.values()]
    lowest_floors = [-one for one in largest_of_others(floors)] if len(floors) > 1 else []
    by_place = _by_place(common)
    objects = _objects_ns(_Place(common, place, by_place) for place in by_place if of_objects(place) is not None)
    passes = _in_all_passes(common, by_place)
    found: list[HostCause] = []
    rest: list[tuple[_Place, set[int | None]]] = []
    for place in sorted(by_place):
        there = _Place(common, place, by_place)
        alone = there.alone(slowness, lowest_floors)
        found += alone
        named = objects.get(of_objects(place) or "")
        together = there.together({cause.rank for cause in alone}, named, passes[_whichever_pass(place)])
        found += together
        if not together:
            rest.append((there, {cause.rank for cause in alone}))
    stalled = {figure.within for cause in found if cause.rank is None for figure in cause.evidence}
    parts = stalled.intersection(_OUTSIDE)
    return found + [cause for there, alone_here in rest for cause in there.with_a_stall(parts, alone_here)]


def of_objects(place: GapLocation) -> str | None:
    """Return the collective of Python objects for which a host pickles or unpickles at a place; None for none."""
    return next((one for one in (place.inside, place.before, place.after) if one in _OF_OBJECTS), None)


def _objects_ns(places: "Iterable[_Place]") -> dict[str, Ints]:
    """Return what all ranks stand still for in each step for a collective of objects, at all of its places, by name.

    Pickling comes before it, and each rank's object is unpickled at a place of its own.
    """
    found: dict[str, Ints] = {}
    for one in places:
        if (name := of_objects(one.place)) is not None:
            ns = one.ns.min(axis=0)
            found[name] = found[name] + ns if name in found else ns
    return found


def _whichever_pass(place: GapLocation) -> _Anywhere:
    return place.before, place.after, place.inside


def _in_all_passes(common: CommonSteps, by_place: Mapping[GapLocation, "_Those"]) -> dict[_Anywhere, Ints]:
    """Return what all ranks stand still for in each step between the same operators, whichever pass they belong to.

    Where gradients are accumulated, a forward pass lies before the first backward pass, and others behind it.
    """
    found: dict[_Anywhere, Ints] = {}
    for place in by_place:
        ns = _Place(common, place, by_place).ns.min(axis=0)
        anywhere = _whichever_pass(place)
        found[anywhere] = found[anywhere] + ns if anywhere in found else ns
    return found


class _Those(msgspec.Struct, frozen=True):
    """The ranks that have gaps at a place, by their places among the ranks, and what they have there."""

    at: list[int]
    rows: list[PlacedGaps]
    longest: Ints  # (these ranks, steps), ns
    typical: Ints  # ns; 0 where there are not several a step


def _by_place(common: CommonSteps) -> dict[GapLocation, _Those]:
    found: dict[GapLocation, tuple[list[int], list[PlacedGaps]]] = {}
    for at, evidence in enumerate(common.by_rank.values()):
        for row in evidence.gaps.places:
            ats, rows = found.setdefault(row.place, ([], []))
            ats.append(at)
            rows.append(row)
    return {
        place: _Those(
            ats,
            rows,
            np.array([common.row(common.ranks[at], row.longest_ns) for at, row in zip(ats, rows, strict=True)]),
            np.array([_typical_ns(row) for row in rows], np.int64),
        )
        for place, (ats, rows) in found.items()
    }


class _Place:
    """The gaps of all ranks at one place: tables of ranks and steps, ns."""

    def __init__(self, common: CommonSteps, place: GapLocation, by_place: Mapping[GapLocation, _Those]) -> None:
        self.common, self.place = common, place
        self.rows: list[PlacedGaps | None] = [None] * len(common.ranks)
        shape = (len(common.ranks), len(common))
        self.ns, self.longest = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        here = by_place[place]
        self.longest[here.at] = here.longest
        for at, row in zip(here.at, here.rows, strict=True):
            self.rows[at], self.ns[at] = row, common.row(common.ranks[at], row.ns)
        # of the gaps that have one neighbour in common, at least; typically of the longest of them, of none 0
        self.longest_near = np.zeros(shape, np.int64)
        self.typical_near = np.zeros(len(common.ranks), np.int64)
        for near in (those for other, those in by_place.items() if _near(other, place)):
            self.longest_near[near.at] = np.maximum(self.longest_near[near.at], near.longest)
            self.typical_near[near.at] = np.maximum(self.typical_near[near.at], near.typical)

    @property
    def unseen(self) -> bool:
        """Whether the last step, whose end was not recorded, is the only one that has nothing here."""
        seen = self.common.open_ended and len(self.common) > 1 and bool(self.ns[:, :-1].any(axis=0).all())
        return seen and not self.ns[:, -1].any()

    @property
    def told(self) -> slice:
        """The steps by which a stall is told: without the last one where that is unseen, if two others are left."""
        return slice(len(self.common) - (self.unseen and len(self.common) > FEWEST))

    def alone(self, slowness: list[float], lowest_floors: list[int]) -> list[HostCause]:
        """Return the ranks that stall here longer than the others do."""
        # long enough for a stall whatever the others' are, which takes long to tell
        told = self.told
        may_stall = _mostly_each(self.longest[:, told]) >= _LEAST_NS
        may_stall &= _mostly_each(self.ns[:, told]) >= _SHARE * self.common.step_ns
        if len(self.common.ranks) < 2 or not may_stall.any():
            return []
        found = []
        typical_near = largest_of_others(self.typical_near.tolist())
        for at, (rank, row) in enumerate(zip(self.common.ranks, self.rows, strict=True)):
            if row is None or not may_stall[at]:
                continue
            slow = max(slowness[at], 1.0)
            longest = float(np.median(np.delete(self.longest_near, at, axis=0)))
            usual_one = slow * max(longest, lowest_floors[at], SHORTEST_GAP_NS)
            # a gap shorter than the shortest is not seen on the others, but is there
            usual = slow * max(
                float(np.median(np.delete(self.ns, at, axis=0))), SHORTEST_GAP_NS * row.count / len(row.ns)
            )
            ns = np.maximum(self.ns[at] - usual, 0)
            stalls = _mostly(self.longest[at, told]) >= max(_TIMES * usual_one, _LEAST_NS)
            least = max(_LEAST_NS, round(_TIMES * slow * float(typical_near[at] or SHORTEST_GAP_NS)))
            each_pass = self._at_each_pass(at, row, least, _SHARE)
            if (stalls or each_pass) and _mostly(ns[told]) >= _SHARE * self.common.step_ns:
                beyond = np.rint(self.ns[at] - usual).astype(np.int64)
                cause = _cause(self, rank, [row], np.rint(ns).astype(np.int64), usual, beyond)
                found.append(
                    msgspec.structs.replace(
                        cause,
                        each_pass_ns=_typical_ns(row) if each_pass else 0,
                        punctual=is_punctual(self.common, at, row, usual, told),
                    )
                )
        return found

    def _at_each_pass(self, at: int, row: PlacedGaps, least_ns: int, share: float) -> bool:
        """Tell whether a rank's host stands still for so long, typically, whenever it comes here, in steps alike."""
        if row.several is None:
            return False
        counts = self.common.row(self.common.ranks[at], row.several.counts)[self.told]
        concentrated = row.count >= row.several.as_long_elsewhere
        return (
            row.several.typical_ns >= least_ns
            and counts.mean() >= SEVERAL
            and (counts.min() >= _AS_MANY * counts.max() or (concentrated and counts.min() >= _SOME * counts.max()))
            and _mostly(counts * row.several.typical_ns) >= share * self.common.step_ns
        )

    def together(self, alone: Set[int | None], named: Ints | None, in_all_passes: Ints) -> list[HostCause]:
        """Return the stall that all ranks have in common here; what ranks `alone` have beyond it is told of them.

        `named`: where it is for a collective of objects, what that takes at all of its places, in each step.
        `in_all_passes`: what they stand still for between these operators in each step, in whichever pass.
        """
        base = self.ns.min(axis=0)
        large = _mostly(in_all_passes[self.told]) >= _SHARE_OF_ALL * self.common.step_ns
        single = _mostly(self.longest.min(axis=0)[self.told]) >= max(
            _SHARE_OF_ALL / 2 * self.common.step_ns, _LEAST_OF_ALL_NS
        )
        rows = [row for row in self.rows if row is not None]
        each_pass = (
            len(rows) == len(self.rows)
            and not _is_native(self.place)
            and all(
                self._at_each_pass(
                    at,
                    row,
                    round(_times_elsewhere(row) * (row.several.elsewhere_ns if row.several else 0)),
                    _SHARE_OF_ALL / 2,
                )
                for at, row in enumerate(rows)
            )
        )
        known = (
            named is not None and _mostly(named[self.told]) >= _SHARE_OF_OBJECTS * self.common.step_ns and base.any()
        )
        if not (known or (large and (single or each_pass))):
            return []
        return [self._of_all(rows, alone, min(map(_typical_ns, rows)) if each_pass else 0)]

    def with_a_stall(self, parts: Set[LoopPlace | None], alone: Set[int | None]) -> list[HostCause]:
        """Return what all ranks stand still for here as well where this lies in a part of the loop, outside of the
        model, in which they have a stall: who turns predictions into lists and counts them does all of it there.
        """
        rows = [row for row in self.rows if row is not None]
        if len(rows) < len(self.rows) or place_in_loop(rows) not in parts or _is_native(self.place):
            return []
        told = self.told
        long = _mostly(self.longest.min(axis=0)[told]) >= _LEAST_NS
        much = _mostly(self.ns.min(axis=0)[told]) >= _SHARE * self.common.step_ns
        return [self._of_all(rows, alone, 0)] if long and much else []

    def _of_all(self, rows: list[PlacedGaps], alone: Set[int | None], each_ns: int) -> HostCause:
        """Return the cause of all ranks here; of those that stall `alone`, what they have in common with the others."""
        base, seen = self.ns.min(axis=0), len(self.common) - self.unseen
        own = tuple(
            (rank, round(float((base if rank in alone else self.ns[at])[:seen].mean())))
            for at, rank in enumerate(self.common.ranks)
        )
        return msgspec.structs.replace(_cause(self, None, rows, base, None), own_ns=own, each_pass_ns=each_ns)


def _is_native(place: GapLocation) -> bool:
    """Tell whether a gap lies between the begin and the end of one of torch's own operators: in its native code."""
    return place.inside.startswith(_NATIVE) and place.before == place.after == place.inside


def _times_elsewhere(gaps: PlacedGaps) -> float:
    return _TIMES_OUTSIDE if gaps.within in _OUTSIDE else _TIMES_ELSEWHERE


def _typical_ns(gaps: PlacedGaps) -> int:
    return gaps.several.typical_ns if gaps.several is not None else 0


def _mostly(ns: Ints) -> float:
    """Return what three quarters of the steps reach; of up to three steps all."""
    return float(_mostly_each(ns))


def _mostly_each(table: Ints) -> Ints:
    """Return of each row of a table what three quarters of the steps reach."""
    least: Ints = np.sort(table)[..., table.shape[-1] // 4]
    return least


def _slowness(common: CommonSteps) -> list[float]:
    """Return how many times as long each rank's host is busy a step as the other ranks' hosts are, in the median."""
    busy = np.median(common.table(lambda one: one.busy_ns), axis=1)
    if busy.size < 2:
        return [1.0] * busy.size
    return [float(busy[at] / max(np.median(np.delete(busy, at)), 1.0)) for at in range(busy.size)]


def _near(one: GapLocation, other: GapLocation) -> bool:
    """Tell whether two places have an operator in common, before or after, and what they lie in."""
    same = (one.before == other.before and bool(one.before)) or (one.after == other.after and bool(one.after))
    return one.phase == other.phase and one.inside == other.inside and (same or one == other)


def _call(rows: list[PlacedGaps]) -> str:
    """Return which call of the loop the gaps of all ranks at a place lie before; "" where they differ."""
    calls = {one.opens for one in rows}
    return calls.pop() if len(calls) == 1 else ""


def place_in_loop(rows: Iterable[PlacedGaps]) -> LoopPlace | None:
    """Return where in the loop the gaps of all ranks at a place lie; None where they differ, or one does not tell."""
    within = {one.within for one in rows}
    return within.pop() if len(within) == 1 else None


def _cause(
    there: _Place, rank: int | None, rows: list[PlacedGaps], ns: Ints, usual: float | None, beyond: Ints | None = None
) -> HostCause:
    common, place = there.common, there.place
    figure = HostFigure(
        kind="gap",
        name=place.after or place.before,
        inside=place.inside,
        opens=_call(rows),
        within=place_in_loop(rows),
        ns=sum(sum(one.ns) / (len(one.ns) - there.unseen) for one in rows) / len(rows),
        count=sum(one.count / (len(one.ns) - there.unseen) for one in rows) / len(rows),
        others_ns=usual,
        line=line_of_all((one.line, sum(one.ns)) for one in rows),
    )
    annotated = any(one.loading for one in common.by_rank.values())
    loads = place.phase == "before_first" and place.copies_follow and not annotated
    unsure = place.phase == "before_first" and not annotated
    return HostCause(
        code="data_loading" if loads else "host_stall",
        rank=rank,
        steps=common.steps,
        ns=tuple(ns.tolist()),
        beyond_ns=None if beyond is None else tuple(beyond.tolist()),
        evidence=(figure,),
        place=place,
        unseen=there.unseen,
        confidence=0.7 if unsure else 1.0,
        otherwise=("host_stall" if loads else "data_loading") if unsure else None,
    )
