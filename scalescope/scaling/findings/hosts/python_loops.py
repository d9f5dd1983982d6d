"""Loops of Python that run an operator or two for each element, row or tensor, where hosts compute; outside the model.

Hundreds of operators behind one another that are of a few names, nothing that multiplies among them, are no model's
layers. An optimizer without a fused form, and a forward pass that says where it is, may look so: they are none.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from scalescope.scaling.finding.figures import LOOP_AFTER
from scalescope.scaling.finding.finding import EvidenceRow
from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.findings.hosts.own_lines import line_of_activities
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.replay.ranks.elements import element_loops
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of

#: So many operators behind one another, of so many names at most, are a loop. Three are what its body has: what gets at
#: an element, what computes, what puts it back. The longest such stretch that no user's loop made was of 105: DDP's
#: copies of a GPT's 52 gradients and the clipping behind them.
_LONG, _NAMES = 200, 3
#: Of a loop's operators those are named that are so many of them.
_A_PART = 0.01
#: Of what launching is made of, loops must be so much to be what it is about: by count, and by the hosts' time. At less
#: than half the larger part of the advice to write whole tensors would be for naught.
_MOSTLY = 0.5
_OF_THE_MODEL = re.compile(r"Optimizer\.step#|.*\.forward$")


class _Loop(msgspec.Struct, frozen=True):
    activities: tuple[int, ...]
    between_ns: float  # what the host does between them


def python_loop(scene: Scene) -> tuple[EvidenceRow, ...]:
    """Return what of a step's operators are a loop's, and where it lies, if that is most of them; () otherwise.

    What reads element by element is none of it: that is told by itself.
    """
    if not scene.replayer.on_cpu:
        return ()
    graph, ranks = scene.replayer.graph, scene.side.ranks
    numbers = {graph.step_numbers[step] for step in scene.side.steps}
    reads = {rank: _reading(scene, rank) for rank in ranks}
    found = {rank: list(_loops(scene, rank, numbers, reads[rank])) for rank in ranks}
    whole, whole_ns, names = 0, 0.0, Counter[str]()
    for rank in ranks:
        for at, call in enumerate(graph.calls[rank]):
            if call.launches >= 0 and at not in reads[rank] and _computes(graph, call.launches, numbers):
                whole, whole_ns = whole + 1, whole_ns + call.think_ns
        for loop in found[rank]:
            names.update(graph.activities[at].name for at in loop.activities)
    looped_ns = sum(loop.between_ns for own in found.values() for loop in own)
    if not whole or sum(names.values()) < _MOSTLY * whole or looped_ns < _MOSTLY * whole_ns:
        return ()
    count = len(ranks) * len(numbers)
    rank, longest = max(
        ((rank, loop) for rank, own in found.items() for loop in own), key=lambda one: len(one[1].activities)
    )
    place = _place(scene, rank, longest)
    calls, looped_ms = sum(names.values()) / count, looped_ns / 1e6 / count
    line = line_of_activities(scene, (at for own in found.values() for loop in own for at in loop.activities))
    return (
        EvidenceRow(kind="figure", name=f"{LOOP_AFTER} {place}".strip(), ms=looped_ms, calls=calls, line=line),
        *(
            EvidenceRow(kind="operator", name=name, calls=times / count)
            for name, times in names.most_common(_NAMES)
            if times >= _A_PART * sum(names.values())
        ),
    )


def _reading(scene: Scene, rank: int) -> set[int]:
    """Return the calls of a rank by which it reads element by element, where that is told by itself."""
    if rank not in scene.element_loops:
        return set()
    return {at for loop in element_loops(scene.replayer.graph, rank) for at in loop.calls}


def _computes(graph: Graph, at: int, numbers: set[int]) -> bool:
    node = graph.activities[at]
    return node.kind == COMPUTE and node.step in numbers and at not in graph.loading


def _loops(scene: Scene, rank: int, numbers: set[int], reading: set[int]) -> Iterator[_Loop]:
    graph = scene.replayer.graph
    for run in _runs(graph, rank, numbers, reading):
        activities = tuple(graph.calls[rank][at].launches for at in run)
        if _is_of_the_model(scene, rank, activities):
            continue
        yield _Loop(activities, sum(graph.calls[rank][at].think_ns for at in run[1:]))


def _runs(graph: Graph, rank: int, numbers: set[int], reading: set[int]) -> Iterator[list[int]]:
    """Yield the calls, so many in a row, that run operators of so few names; nothing that multiplies."""
    run: list[int] = []
    step = -1
    last: dict[str, int] = {}  # by name: where in the run it is last
    for at, call in enumerate(graph.calls[rank]):
        if at in reading:
            continue  # what lies between two reads is a loop's as well
        node = graph.activities[call.launches] if call.launches >= 0 else None
        fits = node is not None and _computes(graph, call.launches, numbers) and kind_of(node.name) not in MULTIPLYING
        if not fits or (run and node is not None and node.step != step):
            if len(run) >= _LONG:
                yield run
            run, last = [], {}
        if not fits or node is None:
            continue
        step = node.step
        if node.name not in last and len(last) == _NAMES:
            if len(run) >= _LONG:
                yield run
                run, last = [], {}
            else:  # it may begin behind the last one of the name that is longest ago
                gone = min(last, key=last.__getitem__)
                first = last.pop(gone) + 1
                run = run[first:]
                last = {name: place - first for name, place in last.items()}
        last[node.name] = len(run)
        run.append(at)
    if len(run) >= _LONG:
        yield run


def _is_of_the_model(scene: Scene, rank: int, activities: Sequence[int]) -> bool:
    begin, end = _span(scene, rank, activities)
    phases = scene.replayer.records[rank].phases
    return any(_OF_THE_MODEL.match(name) and begun < (begin + end) / 2 < over for begun, over, name in phases)


def _span(scene: Scene, rank: int, activities: Sequence[int]) -> tuple[int, int]:
    """Return when activities run, on the clock of their rank's record."""
    graph = scene.replayer.graph
    offset = graph.edges[rank][0] - scene.replayer.records[rank].edges[0]
    return (
        graph.activities[activities[0]].traced_start - offset,
        graph.activities[activities[-1]].traced_end - offset,
    )


def _place(scene: Scene, rank: int, loop: _Loop) -> str:
    """Return behind which of the loop's own phases a loop lies, or else behind which operator; "": none."""
    begin, _ = _span(scene, rank, loop.activities)
    graph, record = scene.replayer.graph, scene.replayer.records[rank]
    step = graph.activities[loop.activities[0]].step
    begun = record.edges[record.steps.index(step)]
    phases = [(over, name) for start, over, name in record.phases if start >= begun and over <= begin]
    if phases:
        return max(phases)[1]
    before = [
        call.launches
        for call in graph.calls[rank]
        if 0 <= call.launches < loop.activities[0] and _computes(graph, call.launches, {step})
    ]
    return graph.activities[before[-1]].name if before else ""
