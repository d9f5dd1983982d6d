"""What hosts read element by element, in a loop of Python: an operator or two for each value.

On a CPU the operators are activities. Where reads follow one another with little between them, that is a *loop*. All
that reads or indexes goes with it, and so does what compares or adds up single values, which are Python's own numbers
once they are read at once, and what Python takes to call all that, which is about what it runs for; what else lies
between two reads stays. On a device's host it is a share of what that takes on its way to a call.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from scalescope.scaling.rank.records.element_reads import LEAST_READS, OF_A_LOOP, READING
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.graph import Graph, HostCall, median

#: So many other operators between two reads at most: a comparison, a sum, a norm. Of a loop's, at least half read or
#: index: an optimizer that reads how many steps it has made computes for the most part.
_MOST_BETWEEN = 4
_LEAST_SHARE = 0.5
#: What takes no longer than so many reads has a single value to compute with: all of it is calling.
_READS_LONG = 2.0


class ElementLoop(msgspec.Struct, frozen=True):
    """One loop of one rank: indices into its calls, ascending, of what goes with it; how many of them read."""

    calls: tuple[int, ...]
    reads: int


def element_loops(graph: Graph, rank: int) -> list[ElementLoop]:
    """Return the loops in which a rank's host reads element by element, in order, where it computes."""
    if graph.elements.get(rank) is not None:
        return []
    return [loop for run in _runs(graph, graph.calls[rank]) if (loop := _loop(graph, rank, run)) is not None]


class ElementsRead(msgspec.Struct, frozen=True):
    """What a rank's host reads element by element, in the mean of some steps."""

    reads: float
    calls: dict[str, float]  # by operator
    ns: float  # of the operators, and of calling them
    calling_ns: float  # of that, what lies between operators, where those are activities
    in_each_step: bool


def elements_read(graph: Graph, rank: int, steps: Sequence[int]) -> ElementsRead:
    """Return what a rank's host reads element by element in some of the graph's steps."""
    numbers = [graph.step_numbers[step] for step in steps]
    count, calls = max(1, len(numbers)), graph.calls[rank]
    names: Counter[str] = Counter()
    reads, ns, calling = dict.fromkeys(numbers, 0), 0.0, 0.0
    for one in graph.elements.get(rank, ()):
        if (number := _step_of(graph, calls, one.call)) in reads:
            reads[number] += one.reads
            names.update(one.calls)
            ns += one.share * max(0.0, calls[one.call].think_ns - calls[one.call].data_ns)
    for loop in element_loops(graph, rank):
        if (number := graph.activities[calls[loop.calls[0]].launches].step) not in reads:
            continue
        reads[number] += loop.reads
        for at in loop.calls:
            names[graph.activities[calls[at].launches].name] += 1
            ns += graph.work_ns[calls[at].launches]
            calling += calling_ns(graph, calls[at])
    return ElementsRead(
        reads=sum(reads.values()) / count,
        calls={name: number / count for name, number in names.items()},
        ns=(ns + calling) / count,
        calling_ns=calling / count,
        in_each_step=all(reads.values()),
    )


def _step_of(graph: Graph, calls: Sequence[HostCall], at: int) -> int:
    """Return the step of what a call launches, or else the next one that does."""
    launched = next((call.launches for call in calls[at:] if call.launches >= 0), -1)
    return graph.activities[launched].step if launched >= 0 else -1


def free_elements(graph: Graph, rank: int) -> None:
    """Take out what a rank's host does to read element by element, and to call that."""
    calls = graph.calls[rank]
    for one in graph.elements.get(rank, ()):
        less = one.share * max(0.0, calls[one.call].think_ns - calls[one.call].data_ns)
        calls[one.call] = replace(calls[one.call], think_ns=calls[one.call].think_ns - less)
    for loop in element_loops(graph, rank):
        for at in loop.calls:
            call = calls[at]
            graph.work_ns[call.launches] = 0.0
            calls[at] = replace(call, think_ns=call.think_ns - calling_ns(graph, call), duration_ns=0.0)


def calling_ns(graph: Graph, call: HostCall) -> float:
    """Return what Python takes to call an operator of a loop: no longer than the operator runs, as recorded."""
    node = graph.activities[call.launches]
    return min(max(0.0, call.think_ns - call.data_ns), float(node.traced_end - node.traced_start))


def _runs(graph: Graph, calls: Sequence[HostCall]) -> Iterator[list[int]]:
    """Yield the calls of one step that read or index, or lie between such, with little between two reads."""
    run: list[int] = []
    since = step = 0  # others since the last read, and the step that the run is of
    for at, call in enumerate(calls):
        node = graph.activities[call.launches] if call.launches >= 0 else None
        computes = node is not None and node.kind == COMPUTE and call.launches not in graph.loading
        if run and (node is None or not computes or node.step != step or since > _MOST_BETWEEN):
            yield run
            run, since = [], 0
        if node is None or not computes:
            continue
        of_loop = node.name in OF_A_LOOP
        if run or of_loop:
            run.append(at)
            since, step = (0 if of_loop else since + 1), node.step
    if run:
        yield run


def _loop(graph: Graph, rank: int, run: Sequence[int]) -> ElementLoop | None:
    nodes = [graph.activities[graph.calls[rank][at].launches] for at in run]
    of_loop = [one.name in OF_A_LOOP for one in nodes]
    reads = [one.traced_end - one.traced_start for one in nodes if one.name in READING]
    last = max((at for at, one in enumerate(of_loop) if one), default=-1)
    if len(reads) < LEAST_READS or sum(of_loop) < _LEAST_SHARE * (last + 1):
        return None
    longest = _READS_LONG * median(reads)
    within = zip(run[: last + 1], nodes, of_loop, strict=False)
    return ElementLoop(
        tuple(at for at, one, own in within if own or one.traced_end - one.traced_start <= longest), len(reads)
    )
