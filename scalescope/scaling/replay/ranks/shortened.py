"""A host that takes less: for a launch, for its data, or for an optimizer that it runs one by one."""

from collections.abc import Collection

from msgspec.structs import replace

from scalescope.records.dtypes import PRECISIONS
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.replay.ranks.side_by_side import Launches
from scalescope.scaling.trace.kernel_kinds import CONVOLUTION, MULTIPLYING, kind_of
from scalescope.scaling.trace.kernel_names import is_off_matrix_units

#: What Python takes between two operators in a row, ns: what is longer is a host that stands still.
_LONGEST_CALLING_NS = 150_000.0
#: A graph's place of double precision, see `Graph.precisions`.
_PLACE_OF_DOUBLE = PRECISIONS.index("float64") + 1


def shorten_host(graph: Graph, rank: int, own: Launches, row: int, by_ns: float) -> None:
    """Let the host take so much less for a launch: of its own time between calls first, then of the calls."""
    calls = graph.calls[rank]
    rows = range(own.since[row], own.call[row] + 1)
    for at in sorted(rows, key=lambda at: -calls[at].think_ns):
        less = min(by_ns, calls[at].think_ns)
        calls[at] = replace(calls[at], think_ns=calls[at].think_ns - less)
        by_ns -= less
        if by_ns <= 0:
            return
    for at in rows:
        less = min(by_ns, calls[at].duration_ns)
        calls[at] = replace(calls[at], duration_ns=calls[at].duration_ns - less)
        by_ns -= less


def free_loading(graph: Graph, rank: int) -> None:
    """Let a rank's batches be there when it asks for them, whether its host waits for them or computes them."""
    graph.calls[rank] = [
        replace(call, think_ns=max(0.0, call.think_ns - call.data_ns), data_ns=0.0) if call.data_ns else call
        for call in graph.calls[rank]
    ]
    for at in graph.loading:
        if graph.activities[at].rank == rank:
            graph.work_ns[at] = 0.0


def fuse_optimizer(graph: Graph, rank: int, given_back: float, of_calls: float | None = None) -> None:
    """Let a rank's optimizer be one operator: that gives back so much of what it runs one by one, and of calling it."""
    _take_off(graph, rank, graph.optimizing, given_back, of_calls)


def update_at_once(graph: Graph, rank: int, given_back: float, of_calls: float | None = None) -> None:
    """Let a rank's loops over parameters be a few operators for all of them, which gives back so much."""
    _take_off(graph, rank, graph.by_hand, given_back, of_calls)


def build_normalisation_in(graph: Graph, rank: int, given_back: float, of_calls: float | None = None) -> None:
    """Let each of a rank's normalisations be one operator: that gives back so much of what it runs one by one."""
    _take_off(graph, rank, graph.normalising, given_back, of_calls)


def free_preparing(graph: Graph, rank: int) -> None:
    """Let a rank's batches come as its network takes them."""
    _take_off(graph, rank, graph.preparing, 1.0)


def free_metrics(graph: Graph, rank: int) -> None:
    """Let a rank look at nothing behind its steps' updates."""
    _take_off(graph, rank, graph.metrics, 1.0)


def free_recomputed(graph: Graph, rank: int) -> None:
    """Let a rank's backward pass find all activations kept."""
    _take_off(graph, rank, graph.recomputed, 1.0)


def free_unused(graph: Graph, rank: int) -> None:
    """Let a rank's forward pass compute nothing that leads to no gradient."""
    _take_off(graph, rank, graph.unused, 1.0)


def in_double(graph: Graph, rank: int, *, convolved: bool) -> list[int]:
    """Return what a rank computes in double precision, where that is told: on CPUs convolutions, or all others, and on
    devices, where all count as others, nothing that converts alone. What a loader computes is loading.
    """
    of_device = [] if convolved else [at for at in sorted(graph.double) if graph.activities[at].rank == rank]
    return of_device + [
        at
        for at, place in graph.precisions.items()
        if place == _PLACE_OF_DOUBLE
        and at not in graph.loading
        and graph.activities[at].rank == rank
        and (kind_of(graph.activities[at].name) == CONVOLUTION) == convolved
    ]


def compute_in_single(graph: Graph, rank: int, given_back: float, *, convolved: bool) -> None:
    """Let a rank compute in float32 what it computes in float64: that gives back so much, and nothing of calling it.

    A device then converts nothing, and its host launches no conversion.
    """
    for at in in_double(graph, rank, convolved=convolved):
        graph.work_ns[at] *= 1 - given_back
    if not convolved:
        _take_off(graph, rank, graph.converting, 1.0)


def use_matrix_units(graph: Graph, rank: int, given_back: float) -> None:
    """Let a rank's products in fp32 run on its device's matrix units: that gives back so much, and no launch."""
    for at in off_matrix_units(graph, rank):
        graph.work_ns[at] *= 1 - given_back


def off_matrix_units(graph: Graph, rank: int) -> list[int]:
    """Return what multiplies in fp32 on the plain cores of a rank's device, ascending."""
    own = {node.name for node in graph.activities if node.rank == rank and node.kind == COMPUTE}
    names = {name for name in own if kind_of(name) in MULTIPLYING and is_off_matrix_units(name)}
    return [at for at, node in enumerate(graph.activities) if names and node.rank == rank and node.name in names]


def _take_off(graph: Graph, rank: int, own: Collection[int], given_back: float, of_calls: float | None = None) -> None:
    """Take a share off activities of a rank, and as much off calling them, or `of_calls`."""
    if not own:
        return
    off_calls = given_back if of_calls is None else of_calls
    calls = graph.calls[rank]
    for at, call in enumerate(calls):
        if call.launches not in own:
            continue
        graph.work_ns[call.launches] *= 1 - given_back
        calling = max(0.0, call.think_ns - call.data_ns)
        if calling <= _LONGEST_CALLING_NS:
            calls[at] = replace(
                call,
                think_ns=call.think_ns - off_calls * calling,
                duration_ns=(1 - off_calls) * call.duration_ns,
            )
