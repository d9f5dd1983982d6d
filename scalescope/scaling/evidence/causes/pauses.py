"""Where a host does nothing in some steps only: at one place, for far longer than that place takes in the others.

A job that writes a log, collects garbage or reads a file every so many steps pauses at the same place, for about as
long each time. A host that shares its cores stands still as well, but now here and now there, for what the scheduler's
turns take. So pauses of two steps and more count where they are alike, and where as long a gap is rarer at all other
places together, but for places at which it stands still in the very same steps: a checkpoint is written tensor by
tensor, at one place a hundred times and longest at another. That is one pause, whose gaps at one place count together,
however short each is; where hosts compute they do not, since others' turns add up as well. A single one counts only
where it is longer than turns are, and stands out from all others of the window: even so it may have been anything, and
costs for sure nothing.
Nor is a single one in the first step that is recorded on a device the job's: there recording begins, which loads code,
takes memory for its records, and lets Python collect its garbage.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from scalescope.scaling.evidence.causes.common_steps import CommonSteps
from scalescope.scaling.evidence.causes.stalls import FEWEST, place_in_loop
from scalescope.scaling.evidence.gaps import GapLocation, PlacedGaps
from scalescope.scaling.evidence.host_cause import HostCause, HostFigure, line_of_all
from scalescope.scaling.evidence.interruptions import LONGEST_TURN_NS
from scalescope.scaling.trace.intervals import Ints

#: The share of a step that pauses take at least, in the mean of all steps.
_SHARE = 0.01
#: A pause is at least so long, ns, and so many times what its place takes in the other steps, and on the others. Where
#: hosts compute they share cores: a turn of another process is up to 12 ms long, and turns are alike, too.
_LEAST_NS, _LEAST_ON_CPU_NS = 2_000_000, 12_000_000
_TIMES = 10
#: In so many of the steps and more it is no pause of some steps: `stalls` tells of it.
_MOSTLY = 0.75
#: Pauses are alike where their standard deviation is within this share of their mean.
_ALIKE = 0.35
#: What a host stands still for elsewhere is as long as its pauses from this share of them on.
_AS_LONG = 0.5
#: A single pause is longer than others' turns on its core, and so many times as long as all else in the window.
_STANDS_OUT = 3
#: So many pauses tell a period: two have one whatever made them.
_LEAST_TIMES = 3
#: Pauses at several places in so many steps, and in no others, are of one making: of one step that would be chance.
_FEWEST_TOGETHER = 2
#: Recording begins within this, ns: loading code, taking memory and collecting garbage take tens of milliseconds.
_BEGINS_WITHIN_NS = 100_000_000

#: What hosts stand still for at each place, ns, (ranks, steps).
_Gaps = dict[GapLocation, Ints]


def pause_causes(common: CommonSteps) -> list[HostCause]:
    """Return a cause for each rank and place of pauses in some steps, and for each place at which all ranks pause."""
    if len(common) < 2:
        return []
    longest, sums = _gaps(common)
    tables = [longest] if common.on_cpu else [longest, sums]
    found: list[HostCause] = []
    for place, ns in sums.items():
        for table in tables:
            told = _at_place(common, place, table, several=table is sums)
            if table is sums:
                told = [one for one in told if _stands_still(one, common, longest[place])]
            if told:
                found += told if common.on_cpu else [_whole(one, place, common, ns, longest[place]) for one in told]
                break
    return _of_the_same_steps(common, found)


def _at_place(common: CommonSteps, place: GapLocation, table: _Gaps, *, several: bool) -> list[HostCause]:
    """Return the causes at one place, by what each rank's gaps there take in each step, ns.

    `several`: the table adds up the gaps of a step; then a pause of one step is none.
    """
    interrupted = common.table(lambda one: one.interruptions.ns if one.interruptions else None)
    ns = table[place]
    together = ns.min(axis=0)
    elsewhere = max((float(other.max()) for at, other in table.items() if at != place), default=0.0)
    elsewhere = math.inf if several else max(elsewhere, float((interrupted - ns).max()))
    paused = _paused(common, together, np.zeros_like(together), elsewhere)
    if len(common.ranks) > 1 and paused.any():
        return [_cause(common, None, place, np.where(paused, together, 0))]
    own: list[HostCause] = []
    for at, rank in enumerate(common.ranks):
        if ns[at].max() < _least_ns(common):
            continue  # whatever the others do, which takes long to tell
        others = np.delete(ns, at, axis=0)
        usual = np.median(others, axis=0).astype(np.int64) if len(others) else np.zeros_like(together)
        paused = _paused(common, ns[at], usual, max(elsewhere, float(others.max(initial=0))))
        if paused.any() and not _is_among_many(
            ns[at],
            paused,
            [_beyond_usual(row[at]) if several else row[at] for one, row in table.items() if one != place],
        ):
            own.append(_cause(common, rank, place, np.where(paused, ns[at] - usual, 0)))
    # ranks that take turns are late in most steps together: that is a cause of its own
    by_turns = len(own) > 1 and np.any([one.ns for one in own], axis=0).mean() >= _MOSTLY
    return [] if by_turns else own


def _whole(cause: HostCause, place: GapLocation, common: CommonSteps, sums: Ints, longest: Ints) -> HostCause:
    """Return a cause with all the gaps of its place in its steps, and how long the longest of those is, in the mean."""
    paused = np.array(cause.ns) > 0
    at = common.ranks.index(cause.rank) if cause.rank is not None else None
    own, one = (table[at] if at is not None else table.min(axis=0) for table in (sums, longest))
    # what the place takes in each of the other steps it takes in these as well
    ns = np.where(paused, np.maximum(own - np.rint(np.median(own[~paused])).astype(np.int64), cause.ns), 0)
    whole = _cause(common, cause.rank, place, ns)
    return msgspec.structs.replace(whole, longest_ns=round(float(one[paused].mean())))


def _stands_still(cause: HostCause, common: CommonSteps, longest: Ints) -> bool:
    """Tell whether the longest gap of a place that pauses is as much longer than in the other steps as its sum is.

    Else the host is slower in some steps, at each of the many gaps between its launches, more of which are long enough
    to be counted.
    """
    paused = np.array(cause.ns) > 0
    own = longest[common.ranks.index(cause.rank)] if cause.rank is not None else longest.min(axis=0)
    return bool(own[paused].mean() >= _TIMES * own[~paused].max(initial=0))


def _of_the_same_steps(common: CommonSteps, causes: Sequence[HostCause]) -> list[HostCause]:
    """Return the causes, those of one rank in the same several steps as one, at the place that takes longest.

    Where hosts compute a place each is told: what is launched behind each of them tells them apart in the replay.
    """
    groups: dict[object, list[HostCause]] = {}
    for at, one in enumerate(causes):
        steps = tuple(ns > 0 for ns in one.ns)
        alone = common.on_cpu or sum(steps) < _FEWEST_TOGETHER
        groups.setdefault(at if alone else (one.rank, steps), []).append(one)
    found = []
    for group in groups.values():
        group.sort(key=lambda one: -one.typical_ns)
        ns = tuple(map(sum, zip(*(one.ns for one in group), strict=True)))
        evidence = tuple(figure for one in group for figure in one.evidence)
        longest_ns = max(one.longest_ns for one in group)
        found.append(msgspec.structs.replace(group[0], ns=ns, evidence=evidence, longest_ns=longest_ns))
    return found


def without_pauses(common: CommonSteps, pauses: Sequence[HostCause], interruptions: Ints) -> Ints:
    """Return interruptions, ns a rank and step, without the pauses among them."""
    left = interruptions.copy()
    for cause in pauses:
        rows = [at for at, rank in enumerate(common.ranks) if cause.rank in (None, rank)]
        left[rows] = np.maximum(left[rows] - np.array(cause.ns, np.int64), 0)
    return left


def _gaps(common: CommonSteps) -> tuple[_Gaps, _Gaps]:
    """Return the longest gap at each place, and what all take there, ns, (ranks, steps)."""
    longest: _Gaps = {}
    sums: _Gaps = {}
    for at, (rank, evidence) in enumerate(common.by_rank.items()):
        for one in evidence.gaps.places:
            for found, ns in ((longest, one.longest_ns), (sums, one.ns)):
                table = found.setdefault(one.place, np.zeros((len(common.ranks), len(common)), np.int64))
                table[at] = common.row(rank, ns)
    return longest, sums


def _beyond_usual(ns: Ints) -> Ints:
    """Return by how much a place's gaps take longer in each step than in most."""
    return np.maximum(ns - int(np.median(ns)), 0)


def _least_ns(common: CommonSteps) -> int:
    return _LEAST_ON_CPU_NS if common.on_cpu else _LEAST_NS


def _paused(common: CommonSteps, ns: Ints, usual: Ints, elsewhere: float) -> np.ndarray:
    """Tell of each step whether the host pauses in it.

    `usual`: what the other ranks take there; `elsewhere`: the longest of all other gaps, ns.
    """
    other_steps = float(np.sort(ns)[(ns.size - 1) // 4])
    least = np.maximum(_TIMES * np.maximum(usual, other_steps), _least_ns(common))
    paused = np.asarray(ns >= least)
    count = int(paused.sum())
    lengths = ns[paused]
    # what follows the last step's last launch is not recorded: in all others, it is a stall
    always = common.open_ended and ns.size > FEWEST and not ns[-1] and bool(paused[:-1].all())
    if not count or always or count >= _MOSTLY * ns.size or lengths.sum() < _SHARE * common.step_ns * ns.size:
        return np.zeros(ns.size, bool)
    if count == 1:
        sure = lengths[0] >= LONGEST_TURN_NS and lengths[0] >= _STANDS_OUT * elsewhere
    else:
        sure = lengths.std() <= _ALIKE * lengths.mean()
    return paused if sure else np.zeros(ns.size, bool)


def _is_among_many(ns: Ints, paused: np.ndarray, elsewhere: Sequence[Ints]) -> bool:
    """Tell whether a host stands still as long elsewhere, more often than at this place: then those are turns, too.

    Where it does so elsewhere in all of the same steps, and in no other, it is for the same thing.
    """
    least = _AS_LONG * ns[paused].mean()
    as_long = [other >= least for other in elsewhere]
    together = int(paused.sum()) >= _FEWEST_TOGETHER
    return sum(int(one.sum()) for one in as_long if not (together and (one == paused).all())) > int(paused.sum())


def _call(rows: Sequence[PlacedGaps]) -> str:
    """Return which call of the loop gaps lie before; "" where they differ."""
    calls = {one.opens for one in rows}
    return calls.pop() if len(calls) == 1 else ""


def _cause(common: CommonSteps, rank: int | None, place: GapLocation, ns: Ints) -> HostCause:
    paused = ns[ns > 0]
    own = [evidence for number, evidence in common.by_rank.items() if rank in (None, number)]
    rows = [one for evidence in own for one in evidence.gaps.places if one.place == place]
    figure = HostFigure(
        kind="gap",
        name=place.after or place.before,
        inside=place.inside,
        opens=_call(rows),
        within=place_in_loop(rows),
        ns=float(paused.mean()),
        count=1.0,
        share=paused.size / ns.size,
        line=line_of_all((one.line, sum(one.ns)) for one in rows),
    )
    return HostCause(
        code="host_stall",
        rank=rank,
        steps=common.steps,
        ns=tuple(ns.tolist()),
        evidence=(figure,),
        place=place,
        now_and_then=True,
        period=_period(common, ns),
        opening=_is_of_recording(common, place, ns),
    )


def _period(common: CommonSteps, ns: Ints) -> int | None:
    """Return after how many steps a pause comes back, where it has done so at least twice and never otherwise."""
    numbers = np.array(common.steps)
    paused = numbers[ns > 0]
    if paused.size < _LEAST_TIMES or numbers[-1] - numbers[0] != numbers.size - 1:
        return None
    period = int(paused[1] - paused[0])
    regular = period > 1 and bool((np.diff(paused) == period).all())
    whole = paused[0] - period < numbers[0] and paused[-1] + period > numbers[-1]
    return period if regular and whole else None


def _is_of_recording(common: CommonSteps, place: GapLocation, ns: Ints) -> bool:
    """Tell whether a pause is a single one in the window's first step, before its backward pass, and of its length."""
    early = place.phase in ("before_first", "forward") or place.is_collector
    return early and np.flatnonzero(ns).tolist() == [0] and not common.on_cpu and int(ns[0]) <= _BEGINS_WITHIN_NS
