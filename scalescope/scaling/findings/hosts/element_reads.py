"""Loops of Python that read a host's tensors element by element: an operator for each value.

What such a loop takes is no launching: it goes when values are read at once, whatever is compiled. Of one rank alone
that computes on a CPU it is work of its own, which is told as that.
"""

from collections.abc import Iterable, Iterator, Mapping

from scalescope.scaling.finding.figures import ELEMENTS_READ
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.hosts.own_lines import line_of_activities
from scalescope.scaling.rank.records.element_reads import READING
from scalescope.scaling.replay.ranks.elements import ElementsRead, element_loops
from scalescope.scaling.replay.removal import Removal

#: So many operators are named, of such a share of all: those that read, and what gets at what is read.
_NAMED, _A_PART = 3, 0.01


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
