"""Loops of Python that read a host's tensors element by element: an operator for each value.

What such a loop takes is no launching: it goes when values are read at once, whatever is compiled. Of one rank alone
that computes on a CPU it is work of its own, which is told as that.
"""

from collections.abc import Iterable, Iterator, Mapping

from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.figures import ELEMENTS_READ
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.hosts.own_lines import line_of_activities
from scalescope.scaling.rank.records.element_reads import READING
from scalescope.scaling.replay.ranks.elements import ElementsRead, element_loops, elements_read
from scalescope.scaling.replay.removal import Removal

#: So many operators are named, of such a share of all: those that read, and what gets at what is read.
_NAMED, _A_PART = 3, 0.01
#: What a loop of `float(v)` takes unrecorded of what it does recorded, with operators' shapes and without: 1.33 of 5.41
#: and of 3.22 ms, of 1,928 operators, on a quiet machine of two cores, five turns within 2%.
_WITH_SHAPES, _WITHOUT_SHAPES = 0.25, 0.41
#: … and it is at least this share of that: other operators, and other hosts, differ.
_KNOWN_DOWN_TO = 0.6


def element_reads(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where hosts read element by element in each of the steps: of all, or of each that does."""
    loops = {rank: one for rank, one in scene.element_loops.items() if one.in_each_step}
    if loops and len(loops) == len(scene.side.ranks):
        yield _candidate(scene, None, loops)
    elif not scene.replayer.on_cpu:
        for rank, one in loops.items():
            yield _candidate(scene, rank, {rank: one})


def _candidate(scene: Scene, rank: int | None, of_ranks: Mapping[int, ElementsRead]) -> Candidate:
    loops = list(of_ranks.values())
    calls: dict[str, float] = {}
    for one in loops:
        for name, count in one.calls.items():
            calls[name] = calls.get(name, 0.0) + count / len(loops)
    some = [name for name, count in calls.items() if count >= _A_PART * sum(calls.values())]
    names = sorted(some, key=lambda name: (name not in READING, -calls[name]))
    ms, reads = (sum(values) / len(loops) for values in zip(*((one.ns / 1e6, one.reads) for one in loops), strict=True))
    return Candidate(
        code="element_reads",
        rank=rank,
        removals=(Removal("elements", rank),),
        evidence=(
            EvidenceRow(kind="figure", name=ELEMENTS_READ, ms=ms, calls=reads),
            *(EvidenceRow(kind="operator", name=name, calls=calls[name]) for name in names[:_NAMED]),
        ),
        remedy=Remedy(cure="read_at_once", line=_line(scene, of_ranks)),
    )


def _line(scene: Scene, ranks: Iterable[int]) -> str | None:
    """Return the function of the script that most of the reads are called in, of hosts that compute."""
    graph = scene.replayer.graph
    loops = ((rank, loop) for rank in ranks for loop in element_loops(graph, rank))
    return line_of_activities(scene, (graph.calls[rank][at].launches for rank, loop in loops for at in loop.calls))


def without_recording(scene: Scene, candidate: Candidate, gained: Interval) -> Interval:
    """Return what reads of hosts that compute bring, ms, by what such a loop takes unrecorded of what it does recorded.

    Recording an operator takes longer than these run: by the terms of the mean operator most of it was left in. What
    share is left hardly depends on the host, nor on who shares its cores, which slow both alike. By those terms is how
    long it is at most.
    """
    replayer = scene.replayer
    if candidate.code != "element_reads" or not replayer.on_cpu:
        return gained
    ranks = scene.side.ranks if candidate.rank is None else [candidate.rank]
    recorded, as_run = (
        sum(elements_read(graph, rank, scene.side.steps).ns for rank in ranks)
        for graph in (replayer.traced, replayer.graph)
    )
    own = [replayer.records[rank].recorded for rank in ranks]
    share = _WITH_SHAPES if any(one is not None and one.shapes for one in own) else _WITHOUT_SHAPES
    spent = scene.analysis.as_run.recording_ms if scene.analysis.as_run is not None else None
    if spent is None or not 0 < as_run < recorded:  # nor where recording was not taken out
        return gained
    left = max(share * recorded, recorded - 1e6 * max(0.0, spent.high) * len(ranks))  # of all that recording costs
    if left >= as_run:
        return gained
    ms = left / as_run * gained.value
    return Interval(ms, min(gained.low, _KNOWN_DOWN_TO * ms), gained.high)
