"""Barriers, and collectives of Python objects, that ranks on CPUs run in each step: training needs neither.

A collective waits for all ranks by itself, and figures for a log can travel as one tensor, now and then. What ranks
lose there is no part of its own: they wait for the last of them, which they would mostly do at the next collective as
well; they pickle; and a thread is woken for each round of messages. So the replay tells what a step takes without them.
"""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from scalescope.scaling.finding.codes import Cure
from scalescope.scaling.finding.figures import BARRIERS, OBJECTS, WAITED_AT_THEM
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.detectors.small_collectives import chosen_steps
from scalescope.scaling.findings.hosts.host_rows import pickles
from scalescope.scaling.findings.shares import mean_step_ms
from scalescope.scaling.replay.removal import Removal

_BARRIER = "barrier"
#: Ranks wait for each other by turns where the one that does so least has such a share of all waits.
_BY_TURNS = 0.1
#: A rank's indices of calls, ascending, and for each row of ranks the same collective on all.
_Calls = Mapping[int, Sequence[int]]


def needless_collectives(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where ranks on CPUs meet in a barrier, or exchange objects, in each of the replayed steps."""
    if not scene.replayer.on_cpu or scene.may_wait_unseen or len(scene.replayer.graph.ranks) < 2:
        return
    graph, steps = scene.replayer.graph, chosen_steps(scene)
    barriers = [
        at
        for at, one in enumerate(graph.transfers)
        if one.operation == _BARRIER and one.whole and set(one.members) == set(graph.ranks)
    ]
    by_name = {_BARRIER: _handed_over(scene, barriers), **_objects(scene)}
    found = {name: own for name, own in by_name.items() if _is_in_each(scene, own, steps)}
    if not found:
        return
    profiled_ms = mean_step_ms(scene.analysis, "window", steps)
    as_run = min(1.0, scene.step_ms / profiled_ms) if profiled_ms else 1.0
    rows, waits = [], list[list[float]]()
    for name, own in found.items():
        own = [one for one in own if _step(scene, one) in steps]
        held = [_held_ms(scene, one) for one in own]
        a_step = as_run / len(steps)
        waits += [[(one - min(ms)) * a_step for one in ms] for ms in held]
        rows.append(
            EvidenceRow(
                kind="figure",
                name=BARRIERS if name == _BARRIER else f"{OBJECTS} {name}",
                ms=sum(map(statistics.fmean, held)) * a_step,
                calls=len(own) / len(steps),
            )
        )
    rows.append(EvidenceRow(kind="figure", name=WAITED_AT_THEM, ms=sum(map(statistics.fmean, waits))))
    removals = (Removal("exchanges", transfers=(tuple(barriers),)),) if _BARRIER in found else ()
    exchanges = (Removal("objects"),) if set(found) != {_BARRIER} else ()
    cure: Cure = "exchange_rarely" if removals and exchanges else "drop_barriers" if removals else "tensors_not_objects"
    yield Candidate(
        code="needless_collectives",
        removals=(*removals, *exchanges),
        waits_ms=_may_go_ms(waits),
        evidence=tuple(rows),
        remedy=Remedy(cure=cure),
    )


def _may_go_ms(waits: Sequence[Sequence[float]]) -> float:
    """Return how much of what ranks wait in each collective, ms, may be gone without it: nothing of what ranks wait for
    one that is always the last, who keeps them waiting at the next one. Of a few steps, all where they do so by turns.
    """
    of_ranks = [sum(own) for own in zip(*waits, strict=True)]
    by_turns = min(of_ranks) >= _BY_TURNS * sum(of_ranks)
    return sum(map(max, waits)) if by_turns else min(of_ranks)


def _handed_over(scene: Scene, transfers: Sequence[int]) -> list[_Calls]:
    """Return for each transfer the call of each rank that hands it over."""
    graph = scene.replayer.graph
    place = {
        (rank, call.launches): at
        for rank in graph.ranks
        for at, call in enumerate(graph.calls[rank])
        if call.launches >= 0
    }
    rows = [{rank: (rank, graph.transfers[at].members[rank]) for rank in graph.ranks} for at in transfers]
    return [
        {rank: (place[key],) for rank, key in row.items()} for row in rows if all(map(place.__contains__, row.values()))
    ]


def _objects(scene: Scene) -> dict[str, list[_Calls]]:
    """Return the collectives of objects that all ranks run, by name; none where hosts pickle for so long that they
    stall for it, which is told as that.
    """
    if any(one.code == "host_stall" and pickles(one) for one in scene.host or ()):
        return {}
    of_ranks = {rank: {one.transfers: one for one in own} for rank, own in scene.object_exchanges.items()}
    found: dict[str, list[_Calls]] = {}
    first, *others = of_ranks.values() or [{}]
    for transfers, one in first.items():
        if all(transfers in other for other in others):
            own = {rank: exchanges[transfers].calls for rank, exchanges in of_ranks.items()}
            found.setdefault(one.name, []).append(own)
    return found


def _step(scene: Scene, calls: _Calls) -> int:
    """Return the number of the step in which a collective is handed over."""
    graph = scene.replayer.graph
    rank, own = next(iter(calls.items()))
    return graph.activities[graph.calls[rank][own[0]].launches].step


def _is_in_each(scene: Scene, collectives: Sequence[_Calls], steps: set[int]) -> bool:
    held = Counter(_step(scene, one) for one in collectives)
    return bool(steps) and all(held[step] for step in steps)


def _held_ms(scene: Scene, calls: _Calls) -> list[float]:
    """Return for how long each rank's loop does nothing else, ms: from the operator before to the one that follows."""
    return [_held_ns(scene, rank, own) / 1e6 for rank, own in calls.items()]


def _held_ns(scene: Scene, rank: int, own: Sequence[int]) -> int:
    graph = scene.replayer.graph
    calls, thread = graph.calls[rank], graph.calls[rank][own[0]].thread
    launched = [
        [call.launches for call in rows if call.launches >= 0 and call.thread == thread]
        for rows in (calls[max(0, own[0] - 8) : own[0]], calls[own[-1] + 1 : own[-1] + 9])
    ]
    first, last = (graph.activities[calls[at].launches] for at in (own[0], own[-1]))
    begins = graph.activities[launched[0][-1]].traced_end if launched[0] else first.traced_start
    alone = len(own) == 1
    ends = graph.activities[launched[1][0]].traced_start if alone and launched[1] else last.traced_end
    return max(0, ends - min(begins, first.traced_start))
