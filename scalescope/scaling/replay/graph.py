"""The structure that a replay follows: activities of all ranks, the hosts' calls, and what waits for what."""

import dataclasses
from array import array
from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from scalescope.scaling.rank.records.element_reads import ElementsBefore
from scalescope.scaling.replay.node_columns import Array, NodeColumns

Floats = npt.NDArray[np.float64]


class Activity(msgspec.Struct, gc=False):
    """A node of the replay: something that runs on one stream of one rank."""

    rank: int
    stream: int
    kind: int
    dispatch_ns: float  # between the last thing it waited for and its begin
    step: int
    name: str
    collective: int = -1  # index into Graph.transfers
    skew_ns: float = 0.0  # of a collective's member: by how much it ends after the first member does
    not_before: float = 0.0  # ns; of the first on a stream that was launched before the trace began
    traced_start: int = 0
    traced_end: int = 0
    overlap_ns: int = 0  # of compute: for how much of it, as traced, a collective ran on its rank
    late_ns: float = (
        0.0  # of one that nothing but its launch held up: by how much longer than the rank's latency it took
    )
    beyond_ns: float = 0.0  # how much later still it began, for nothing that the traces show
    blocks: int = 0  # of a kernel's grid; 0: not told
    inputs: int = 0  # elements that it multiplies of what grows with the batch; 0: not told
    wait_ns: float = -1.0  # of a collective that is no transfer of several: how long it waited; below 0: not told


class HostCall(msgspec.Struct, gc=False):
    """A node of the replay: a call of a rank's host, `think_ns` after the one before it returned."""

    think_ns: float
    data_ns: float  # of the think time, what loads data
    duration_ns: float  # where it does not wait
    launches: int = -1
    awaits: int = -1
    room: bool = False  # until the awaited activity begins, not ends
    until_ns: float = 0.0  # after what it awaits, it returns by so much
    thread: int = 0
    hands_over: int = -1  # the collective (its activity) that this call is a part of handing over


class Transfer(msgspec.Struct):
    """A collective: its members, an activity a rank, and the work of moving its data, once all have begun."""

    members: dict[int, int]
    work_ns: float
    operation: str
    bytes: int | None
    dtype: str | None
    group_size: int
    step: int
    traced_ns: float  # its transfer as traced
    hidden: float  # of that, the share under compute, on the mean member
    whole: bool = True  # else a member of its group has no trace: who waited, and how long, is not told
    sparse: bool = False  # it carries a sparse tensor, which DDP puts into no bucket with others


class Gradient(msgspec.Struct, gc=False):
    """One parameter's gradient on one rank, put into its bucket by this activity."""

    activity: int
    bytes: int
    element_bytes: int


class Contention(msgspec.Struct, frozen=True, gc=False):
    """How compute and communication slow each other where they run side by side.

    `inflation`: ms by which compute takes longer for each ms that it would take alone, where a collective (waiting or
    transferring) runs beside it; `transfer_rate`: how fast data moves while the members compute, against 1 while
    none does.
    """

    inflation: float = 0.0
    inflation_low: float = 0.0
    inflation_high: float = 0.0
    transfer_rate: float = 1.0
    basis: str = "not known: taken as none"


class _Shared:
    """What a graph's copies have in common: the fields of its nodes as arrays."""

    def __init__(self) -> None:
        self.activities: NodeColumns[Activity] = NodeColumns(
            kind=np.int32, rank=np.int32, collective=np.int32, dispatch_ns=np.float64, late_ns=np.float64,
            not_before=np.float64, skew_ns=np.float64,
        )  # fmt: skip
        self.traced: NodeColumns[Activity] = NodeColumns(
            traced_start=np.int64, traced_end=np.int64, overlap_ns=np.int64
        )
        self.calls: dict[int, NodeColumns[HostCall]] = {}  # by rank

    def calls_of(self, rank: int) -> NodeColumns[HostCall]:
        if rank not in self.calls:
            self.calls[rank] = NodeColumns(
                think_ns=np.float64, data_ns=np.float64, duration_ns=np.float64, launches=np.int32, awaits=np.int32,
                room=np.uint8, until_ns=np.float64, hands_over=np.int32,
            )  # fmt: skip
        return self.calls[rank]


class LateBatch(msgspec.Struct, frozen=True):
    """A batch that its worker had not made when the host asked: it comes no sooner, however early it is asked for."""

    call: int  # before which the host waits for it
    since: int  # what the host takes less from the call after this one on, it waits longer; -1: from the first on


@dataclass(slots=True)
class Graph:
    """All ranks' nodes. `order` lists a rank's activities a stream, in the order in which the stream runs them.

    Copies share their nodes: whoever changes a copy puts new ones in their places. So it is with a graph that has run.
    """

    ranks: list[int]
    activities: list[Activity]
    work_ns: MutableSequence[float]  # by activity: its duration where nothing runs beside it
    after: dict[int, list[int]]  # by activity: those of other streams that must have ended, where there are any
    order: dict[int, list[list[int]]]  # by rank: a list a stream
    calls: dict[int, list[HostCall]]  # by rank, in order
    begins: dict[int, float]  # by rank: when its host makes its first call, ns
    transfers: list[Transfer]
    steps: dict[int, list[int]]  # by rank: the activity that begins each step, then -1 where the last one is open
    edges: dict[int, list[int]]  # by rank: the traced edges of its steps
    latency: dict[int, float]  # by rank: from the begin of a launch to the earliest begin of the activity, ns
    gradients: dict[int, list[Gradient]]
    step_numbers: list[int]
    contention: Contention
    left_out: set[int] = field(default_factory=set)  # indices of steps that a change could not be made in
    unexplained_ns: dict[int, float] = field(default_factory=dict)  # by rank: idle that nothing explains, in its steps
    loading: set[int] = field(default_factory=set)  # activities of a CPU that load data
    optimizing: set[int] = field(default_factory=set)  # … that an optimizer which is not fused runs one by one
    by_hand: set[int] = field(default_factory=set)  # … that loops of the job's own over parameters run
    normalising: set[int] = field(default_factory=set)  # … that normalise where one operator would
    by_place: dict[int, str] = field(default_factory=dict)  # the kinds of those whose names do not tell them
    preparing: set[int] = field(default_factory=set)  # … that make of a batch what the network takes
    metrics: set[int] = field(default_factory=set)  # … that look at what a step made, behind its update
    recomputed: set[int] = field(default_factory=set)  # … of the forward pass, that the backward pass runs once more
    precisions: dict[int, int] = field(default_factory=dict)  # by activity of a CPU: what it computes in, where told
    double: set[int] = field(default_factory=set)  # … of a device, that compute in float64, as kernels' names tell
    converting: set[int] = field(default_factory=set)  # … of a device, that convert to float64 or from it
    unused: set[int] = field(default_factory=set)  # … of the forward pass, that lead to no gradient
    #: by activity: how many times the contention's inflation is its own; beyond the list 1
    slowed: list[float] = field(default_factory=list)
    awaited_launch: set[int] = field(default_factory=set)  # activities that nothing but their launch held up
    #: by rank: batches that a worker process had not made when the host asked for them
    paced: dict[int, list[LateBatch]] = field(default_factory=dict)
    #: by rank: what its host, beside a device, reads element by element before its calls; {} of ranks on CPUs
    elements: dict[int, list[ElementsBefore]] = field(default_factory=dict)
    led: set[int] = field(default_factory=set)  # ranks whose hosts begin ahead of the trace (replay/host_cost.py)
    shared: _Shared = field(default_factory=_Shared, repr=False, compare=False)

    def living(self) -> list[int]:
        """Return the activities that run; one that no stream lists was taken out by a what-if."""
        return [at for streams in self.order.values() for stream in streams for at in stream]

    def add(self, node: Activity, work_ns: float, after: Sequence[int] = ()) -> int:
        """Add an activity, in no stream yet; return its index."""
        self.activities.append(node)
        self.work_ns.append(work_ns)
        if after:
            self.after[len(self.activities) - 1] = list(after)
        return len(self.activities) - 1

    def copy(self) -> "Graph":
        """Return a graph that can be changed without touching this one."""
        return dataclasses.replace(
            self,
            activities=list(self.activities),
            work_ns=self.work_ns[:],
            after={at: list(others) for at, others in self.after.items()},
            order={rank: [list(stream) for stream in streams] for rank, streams in self.order.items()},
            calls={rank: list(calls) for rank, calls in self.calls.items()},
            transfers=list(self.transfers),
        )

    def activity_columns(self) -> Mapping[str, Array]:
        """Return fields of the activities by their names, an array each, which are not to be changed."""
        return self.shared.activities.of(self.activities)

    def call_columns(self, rank: int) -> Mapping[str, Array]:
        """Return fields of a rank's calls by their names, an array each, which are not to be changed."""
        return self.shared.calls_of(rank).of(self.calls[rank])

    def keep_calls(self, rank: int, columns: Mapping[str, Array]) -> None:
        """Take over the columns of a rank's calls, which were made of them: nobody need read those."""
        self.shared.calls_of(rank).keep(self.calls[rank], columns)

    def inflation(self) -> Floats:
        """Return by how much each activity is slowed by a collective beside it, under this graph's contention."""
        found = np.full(len(self.activities), self.contention.inflation)
        found[: len(self.slowed)] *= self.slowed
        return found

    def under(self, contention: Contention) -> "Graph":
        """Return the graph, as traced, under another contention.

        What running side by side added comes off durations as traced, so that a replay adds it where things run so.
        """
        graph = self.copy()
        graph.contention = contention
        inflation, traced = graph.inflation(), self.shared.traced.of(self.activities)
        own = traced["traced_end"] - traced["traced_start"]
        graph.work_ns = array("d", (own - inflation / (1 + inflation) * traced["overlap_ns"]).tobytes())
        loss = 1 - contention.transfer_rate
        graph.transfers = [replace(one, work_ns=one.traced_ns * (1 - loss * one.hidden)) for one in self.transfers]
        return graph


def median(values: Sequence[float], default: float = 0.0) -> float:
    """Return the median, or the default of nothing."""
    if not values:
        return default
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
