"""How much collectives slow each launch: by what the same launch takes on a rank where none ran beside it.

On the mean kernel the slowing is one figure (between_ranks.py), but kernels differ widely: a matrix product that fills
the device in one wave needs two where a collective has taken some multiprocessors (1.99 times as long, on H200), and a
copy hardly notices (1.04). Where one rank is late, the others' kernels of half a step have a collective beside them and
its own have not, so that is measured launch by launch; with d the typical duration over the steps,

    s = (d - c·d') / o        c: what the two devices differ by, on the typical launch that both run alone
    inflation = s / (1 - s)

Launches that no rank ran alone are taken to be slowed as those of their name are, and else as the mean kernel is.

What one launch takes by itself in one step is not as well known by that: a collective that waits beside it slows it
otherwise than one that transfers does, and a host that is late leaves its device cold. Over half a step's kernels, on
one rank and in one step, that is as much as a small cause costs. Where the job runs the same launch undisturbed in
other steps, or on another rank, and takes the same time for it each time, that is what it takes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.contention import inflation_of
from scalescope.scaling.replay.graph import Graph, median
from scalescope.scaling.replay.ranks.extra import held_up_by
from scalescope.scaling.replay.ranks.side_by_side import Floats, SideBySide

#: A collective is beside a launch from this share of its time on, and none is up to this one.
_BESIDE, _ALONE = 0.5, 0.02
#: A launch is no more than so many times as slow for it.
_MOST = 4.0
#: So many launches that both run alone tell what two devices differ by.
_LEAST_ALONE = 20
#: Launches that ran alone more than once are the same each time where of their time so much lies within so much of each
#: one's median.
_SAME_SHARE, _SAME = 0.9, 0.03

_Key = tuple[str, int]  # a launch's name, and its ordinal in the step


class _Typical(msgspec.Struct, frozen=True):
    """One rank's launches, over the steps."""

    duration: dict[_Key, float]
    beside: dict[_Key, float]  # for how long, ns


def slowing_of_launches(graph: Graph, side: SideBySide) -> list[float]:
    """Return by activity how many times the contention's inflation its own is; empty where nothing tells."""
    usual = graph.contention.inflation
    if usual <= 0 or len(side.ranks) < 2:
        return []
    rows = {rank: _rows(graph, side, rank) for rank in side.ranks}
    typical = {rank: _typical(graph, own) for rank, own in rows.items()}
    measured = {rank: _measured(rank, typical) for rank in side.ranks}
    by_name: dict[str, list[float]] = defaultdict(list)
    for own in measured.values():
        for (name, _), one in own.items():
            by_name[name].append(one)
    if not by_name:
        return []
    of_name = {name: median(values) for name, values in by_name.items()}
    found = [1.0] * len(graph.activities)
    for rank, own_rows in rows.items():
        for key, activities in own_rows.items():
            inflation = measured[rank].get(key, of_name.get(key[0], usual))
            for at in activities:
                found[at] = inflation / usual
    return found


def undisturbed(graph: Graph, side: SideBySide) -> dict[int, float]:
    """Return what launches that were disturbed take undisturbed, ns by activity, where the same launch tells.

    It does on ranks that take the same time for a launch each time: as often as it ran undisturbed on that rank, or
    where it never did, on others that take the same time for all launches, but for their devices' pace. Such ranks take
    the same time for what none of them ran undisturbed, too: the typical one, less what collectives slow it by.
    """
    rows = {rank: _rows(graph, side, rank) for rank in side.ranks}
    alone = {rank: _alone(graph, own) for rank, own in rows.items()}
    several = {rank: [(median(own), own) for own in alone[rank].values() if len(own) > 1] for rank in side.ranks}
    steady = [rank for rank in side.ranks if _is_same(several[rank])]
    typical = {rank: {key: median(own) for key, own in alone[rank].items()} for rank in steady}
    inflation = graph.inflation()
    less = {rank: _less(graph, rows[rank], inflation) for rank in steady}
    found: dict[int, float] = {}
    for rank in steady:
        paces = {other: pace for other in steady if (pace := _pace_of_alike(typical[rank], typical[other])) is not None}
        for key, activities in rows[rank].items():
            told = typical[rank].get(key)
            for of_ranks in (typical, less) if told is None and len(paces) > 1 else ():
                theirs = [pace * one for other, pace in paces.items() if (one := of_ranks[other].get(key)) is not None]
                told = median(theirs) if told is None and theirs else told
            if told is not None:
                found.update((at, told) for at in activities if not _is_alone(graph, at))
    return found


def _pace_of_alike(mine: Mapping[_Key, float], theirs: Mapping[_Key, float]) -> float | None:
    """Return how long a device takes for what another takes 1 for, where that is the same for what both ran
    undisturbed; else None.
    """
    both = [key for key in mine.keys() & theirs.keys() if theirs[key] > 0]
    if len(both) < _LEAST_ALONE:
        return None
    pace = median([mine[key] / theirs[key] for key in both])
    # in both directions: what one of them alone takes long for is little of the other's time
    alike = all(
        _is_same([(times * one[key], [other[key]]) for key in both])
        for times, one, other in ((pace, theirs, mine), (1 / pace, mine, theirs))
    )
    return pace if alike else None


def _less(graph: Graph, rows: Mapping[_Key, list[int]], inflation: Floats) -> dict[_Key, float]:
    """Return what each launch typically takes, ns, less what collectives beside it slow it by."""
    found = {}
    for key, activities in rows.items():
        nodes = [(graph.activities[at], float(inflation[at])) for at in activities]
        found[key] = median([
            node.traced_end - node.traced_start - own / (1 + own) * node.overlap_ns for node, own in nodes
        ])  # fmt: skip
    return found


def _is_same(launches: Sequence[tuple[float, Sequence[float]]]) -> bool:
    """Tell whether launches, each with what it should take, take that for most of their time; of none nothing tells."""
    whole = sum(sum(own) for _, own in launches)
    same = sum(one for usual, own in launches for one in own if abs(one - usual) <= _SAME * usual)
    return whole > 0 and same >= _SAME_SHARE * whole


def _alone(graph: Graph, rows: Mapping[_Key, list[int]]) -> dict[_Key, list[float]]:
    """Return for how long each launch ran, ns, as often as it ran alone."""
    found = {}
    for key, activities in rows.items():
        own = [float(node.traced_end - node.traced_start)
               for at in activities if _is_alone(graph, at) for node in [graph.activities[at]]]  # fmt: skip
        if own:
            found[key] = own
    return found


def _is_alone(graph: Graph, at: int) -> bool:
    node = graph.activities[at]
    return at not in graph.awaited_launch and node.overlap_ns <= _ALONE * (node.traced_end - node.traced_start)


def _rows(graph: Graph, side: SideBySide, rank: int) -> dict[_Key, list[int]]:
    """Return the activities of each compute launch that has a place in the ranks' common program.

    What the rank's own work on another stream holds up tells nothing of collectives.
    """
    found: dict[_Key, list[int]] = defaultdict(list)
    held_up = held_up_by(graph, side, rank)
    for step in side.steps:
        own = side.launches[rank, step]
        ordinals: dict[str, int] = defaultdict(int)
        for at, place in zip(own.activity, own.place.tolist(), strict=True):
            node = graph.activities[at]
            if place >= 0 and node.kind == COMPUTE:
                if at not in held_up:
                    found[node.name, ordinals[node.name]].append(at)
                ordinals[node.name] += 1
    return found


def _typical(graph: Graph, rows: Mapping[_Key, list[int]]) -> _Typical:
    duration, beside = {}, {}
    for key, activities in rows.items():
        nodes = [graph.activities[at] for at in activities]
        duration[key] = median([float(node.traced_end - node.traced_start) for node in nodes])
        beside[key] = median([float(node.overlap_ns) for node in nodes])
    return _Typical(duration, beside)


def _measured(rank: int, typical: Mapping[int, _Typical]) -> dict[_Key, float]:
    """Return the inflation of a rank's launches that are beside a collective here and alone on other ranks."""
    mine = typical[rank]
    alone: dict[_Key, list[float]] = defaultdict(list)
    for other, theirs in typical.items():
        pace = _pace(mine, theirs) if other != rank else None
        if pace is None:
            continue
        for key, duration in theirs.duration.items():
            if theirs.beside[key] <= _ALONE * duration:
                alone[key].append(pace * duration)
    found = {}
    for key, durations in alone.items():
        duration, beside = mine.duration.get(key, 0.0), mine.beside.get(key, 0.0)
        if duration > 0 and beside >= _BESIDE * duration and median(durations) <= duration * (1 + _SAME):
            found[key] = min(max(inflation_of((duration - median(durations)) / beside), 0.0), _MOST)
    return found


def _pace(mine: _Typical, theirs: _Typical) -> float | None:
    """Return how long this device takes for what the other takes 1 for, where both run the launch alone."""
    both = [
        key
        for key in mine.duration.keys() & theirs.duration.keys()
        if mine.beside[key] <= _ALONE * mine.duration[key] and theirs.beside[key] <= _ALONE * theirs.duration[key]
    ]
    ratios: Floats = np.array([mine.duration[key] / theirs.duration[key] for key in both if theirs.duration[key] > 0])
    return float(np.median(ratios)) if ratios.size >= _LEAST_ALONE else None
