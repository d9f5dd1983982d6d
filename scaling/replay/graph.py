"""The structure that a replay follows: activities of all ranks, the hosts' calls, and what waits for what."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace


@dataclass(slots=True)
class Activity:
    """A node of the replay: something that runs on one stream of one rank."""

    rank: int
    stream: int
    kind: int
    work_ns: float  # its duration where nothing runs beside it
    dispatch_ns: float  # between the last thing it waited for and its begin
    after: list[int]  # activities of other streams that must have ended
    step: int
    name: str
    collective: int = -1  # index into Graph.collectives
    skew_ns: float = 0.0  # of a collective's member: by how much it ends after the first member does
    not_before: float = 0.0  # ns; of the first on a stream that was launched before the trace began
    traced_start: int = 0
    traced_end: int = 0


@dataclass(slots=True)
class HostCall:
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


@dataclass(slots=True)
class Transfer:
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


@dataclass(slots=True)
class Gradient:
    """One parameter's gradient on one rank, put into its bucket by this activity."""

    activity: int
    bytes: int
    element_bytes: int


@dataclass(frozen=True, slots=True)
class Contention:
    """How compute and communication slow each other where they run side by side.

    `inflation`: ms by which compute takes longer for each ms that a collective (waiting or transferring) runs beside
    it; `transfer_rate`: how fast data moves while the members compute, against 1 while none does.
    """

    inflation: float = 0.0
    inflation_low: float = 0.0
    inflation_high: float = 0.0
    transfer_rate: float = 1.0
    basis: str = "not known: taken as none"


@dataclass(slots=True)
class Graph:
    """All ranks' nodes. `order` lists a rank's activities a stream, in the order in which the stream runs them."""

    ranks: list[int]
    activities: list[Activity]
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

    def living(self) -> list[int]:
        """Return the activities that run; one that no stream lists was taken out by a what-if."""
        return [at for streams in self.order.values() for stream in streams for at in stream]

    def copy(self) -> "Graph":
        """Return a graph whose nodes can be changed without touching this one's."""
        return replace(
            self,
            activities=[replace(one, after=list(one.after)) for one in self.activities],
            order={rank: [list(stream) for stream in streams] for rank, streams in self.order.items()},
            calls={rank: [replace(call) for call in calls] for rank, calls in self.calls.items()},
            transfers=[replace(one, members=dict(one.members)) for one in self.transfers],
        )


def median(values: Sequence[float], default: float = 0.0) -> float:
    """Return the median, or the default of nothing."""
    return statistics.median(values) if values else default
