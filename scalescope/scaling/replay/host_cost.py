"""What recording costs the hosts, taken out of a graph: the hosts' times less that cost, from a start in full swing.

Two things keep a shorter replay from being the step as run. A window opens with an empty queue: a host that is faster
than its device gets ahead step by step, and after some steps the device never waits for it. And ranks begin a window
as far apart as recording has driven them. So a graph is *settled*: each rank begins as far behind the others, and its
host as far ahead of its device, as it ends up in a first replay.
"""

from array import array
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.rank.timeline import COMPUTE, COPY
from scalescope.scaling.replay.engine.timing import Timing
from scalescope.scaling.replay.graph import Graph, HostCall
from scalescope.scaling.replay.ranks.paced import keep_pace
from scalescope.scaling.replay.simulate import bounded, bounded_steps, simulate, simulate_begins
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of

Floats = npt.NDArray[np.float64]

#: In the name of a copy from or to memory that the device cannot read by itself.
_PAGEABLE = "Pageable"
#: Without fresh pages operators that fill them take half as long, at least (gelu, its backward pass, copies: 0.4 to
#: 0.9), and matrix products 0.97 times.
_FILLS_IN = 0.5
#: Bytes of memory that come together: what exchanges fewer waits for no fresh ones.
_PAGE = 4096
#: Ranks that drift apart by no more than this share of a step, in all steps, are in full swing.
_IN_SWING = 0.001


class CallCost(msgspec.Struct, frozen=True):
    """What recording costs one rank's calls, ns, one figure a call: on the way to each, and inside each.

    `known`: as the profiler itself says; the others are what a model says, at a scale of 1.
    """

    before: Floats
    during: Floats
    before_known: Floats
    during_known: Floats


class HostCost(msgspec.Struct, frozen=True):
    """What recording costs the hosts of all ranks, by the calls and activities of the graph as traced."""

    calls: Mapping[int, CallCost]  # by rank
    #: ns by activity, where hosts run them; else empty
    inside: Floats = msgspec.field(default_factory=lambda: np.empty(0))

    def __bool__(self) -> bool:
        """Whether there is anything to take out."""
        return any(one.before.any() or one.during.any() or one.before_known.any() or one.during_known.any()
                   for one in self.calls.values()) or bool(self.inside.any())  # fmt: skip


class Start(msgspec.Struct, frozen=True):
    """How a rank begins otherwise than in its trace, ns."""

    later: float  # its device and its host
    lead: float  # how much earlier than that its host begins; below 0: later
    device: float  # when its first step begins


def without_recording(graph: Graph, cost: HostCost, scale: float, times: Mapping[int, float] | None = None) -> Graph:
    """Return the graph, as traced, with the hosts' times less `scale` times what recording costs; none goes below 0.

    `times`: ranks whose hosts it costs so many times as much. A wait for a worker process grows by as much as its host
    takes less. Raises RunError where a replay stalls.
    """
    lighter = graph.copy()
    known = 1.0 if scale > 0 else 0.0
    for rank, own in cost.calls.items():
        of_rank = scale * (times or {}).get(rank, 1.0)
        before = of_rank * own.before + known * own.before_known
        during = of_rank * own.during + known * own.during_known
        lighter.calls[rank] = _less(graph, rank, before, during, on_cpu=bool(cost.inside.size))
    if scale > 0:
        keep_pace(lighter, graph)
    if cost.inside.size:
        lighter.work_ns = array("d", np.maximum(np.array(graph.work_ns) - scale * cost.inside, 0.0).tobytes())
    return lighter


def on_slower_devices(graph: Graph, times: float) -> Graph:
    """Return the graph with devices and links that take so many times as long for all that they do."""
    if times == 1.0:
        return graph
    slower = graph.copy()
    slower.work_ns = array("d", (times * np.array(graph.work_ns)).tobytes())
    slower.transfers = [replace(one, work_ns=times * one.work_ns) for one in graph.transfers]
    return slower


def with_quicker_operators(graph: Graph, times: float) -> Graph:
    """Return the graph of ranks on CPUs whose operators take so many times as long, and exchanges that fill pages, too.

    What multiplies matrices does so as it was recorded, unless the others' being `_FILLS_IN` is not enough. What loads,
    and what hosts do in between, stays.
    """
    if times == 1.0:
        return graph
    quicker = graph.copy()
    computes = np.array([node.kind == COMPUTE for node in graph.activities], bool)
    computes[list(graph.loading)] = False
    work = np.array(graph.work_ns)
    names = {node.name: kind_of(node.name) in MULTIPLYING for node in graph.activities}
    multiplies = np.array([names[node.name] for node in graph.activities], bool)
    factors = np.where(multiplies, min(1.0, times / _FILLS_IN), times)
    quicker.work_ns = array("d", np.where(computes, factors * work, work).tobytes())
    mean = float((factors * work)[computes].sum() / max(work[computes].sum(), 1.0))
    quicker.transfers = [
        one if one.bytes is not None and one.bytes < _PAGE else replace(one, work_ns=mean * one.work_ns)
        for one in graph.transfers
    ]
    return quicker


def with_quicker_copies(graph: Graph, share: float) -> Graph:
    """Return the graph with copies of pageable memory that take this share of the way to the window's quickest.

    A host's own cores move such memory through a buffer: it is work of theirs, as quick in one minute as they are then.
    The same copy is the one of its name and ordinal in each step.
    """
    times = _copies_of_pages(graph) if share > 0 else {}
    if not times:
        return graph
    quicker = graph.copy()
    for rows in times.values():
        least = min(graph.work_ns[at] for at in rows)
        for at in rows:
            quicker.work_ns[at] -= share * (graph.work_ns[at] - least)
    return quicker


def _copies_of_pages(graph: Graph) -> dict[tuple[int, str, int], list[int]]:
    """Return the copies of pageable memory of all steps, by rank, name and ordinal in the step."""
    found: dict[tuple[int, str, int], list[int]] = {}
    ordinals: dict[tuple[int, str, int], int] = {}
    for at, node in enumerate(graph.activities):
        if node.kind == COPY and node.step >= 0 and _PAGEABLE in node.name:
            key = (node.rank, node.name, node.step)
            ordinals[key] = ordinals.get(key, -1) + 1
            found.setdefault((node.rank, node.name, ordinals[key]), []).append(at)
    return found


def _less(graph: Graph, rank: int, before: Floats, during: Floats, *, on_cpu: bool) -> list[HostCall]:
    """Return a rank's calls with so many ns less on the way to each, and inside it; none goes below 0.

    What recording a call of the runtime takes lies around it as well as in it: what there is no room for in the call is
    taken off the way to the next one. A CPU's activities are charged for themselves.
    """
    calls = graph.call_columns(rank)
    duration = calls["duration_ns"] - during
    if not on_cpu:
        before = before.copy()
        before[1:] += np.maximum(-duration[:-1], 0.0)
    think = np.maximum(calls["think_ns"] - before, 0.0)
    data = np.minimum(calls["data_ns"], think)
    duration = np.maximum(duration, 0.0)
    rest = (
        calls["launches"],
        calls["awaits"],
        calls["room"].astype(bool),
        calls["until_ns"],
        [call.thread for call in graph.calls[rank]],
        calls["hands_over"],
    )
    fields = (field if isinstance(field, list) else field.tolist() for field in (think, data, duration, *rest))
    found = list(map(HostCall, *fields))
    graph.shared.calls_of(rank).keep(found, {**calls, "think_ns": think, "data_ns": data, "duration_ns": duration})
    return found


def starts_of(graph: Graph, timing: Timing, unchanged: Mapping[int, Sequence[float]] | None = None) -> dict[int, Start]:
    """Return how each rank would begin in full swing: as the replay ends it, at its last step's begin.

    `unchanged`: the steps of the unchanged graph, whose own drift is left as it is.
    """
    passed = {
        rank: timing.begin[own[-1]] - timing.begin[own[0]] - (sum(unchanged[rank]) if unchanged else 0.0)
        for rank, own in graph.steps.items()
        if own
    }
    least = min(passed.values(), default=0.0)
    found = {}
    for rank, own in graph.steps.items():
        if not own:
            continue
        leads = [timing.begin[at] - timing.launch[at] for at in own if timing.launch[at] >= 0]
        # of those that the host launched in the trace
        gained = leads[-1] - leads[0] if len(leads) > 1 else 0.0
        if len(leads) < len(own):  # the first begins ahead of what the trace shows of its host
            gained = max(0.0, gained)
        found[rank] = Start(passed[rank] - least, gained, timing.begin[own[0]])
    return found


def started(graph: Graph, starts: Mapping[int, Start]) -> Graph:
    """Return the graph with ranks that begin so; `led` then names those whose hosts are ahead."""
    moved = graph.copy()
    moved.activities = list(graph.activities)
    moved.begins = {
        rank: begin + (starts[rank].later - starts[rank].lead if rank in starts else 0.0)
        for rank, begin in graph.begins.items()
    }
    for rank, start in starts.items():
        for at in _placed(graph, rank) if start.later else ():
            node = graph.activities[at]
            moved.activities[at] = replace(node, not_before=node.not_before + start.later)
        first = graph.steps[rank][0]
        moved.activities[first] = replace(graph.activities[first], not_before=start.device + start.later)
    moved.led = graph.led | {rank for rank, start in starts.items() if start.lead > 0}
    return moved


def settled_steps(graph: Graph, unchanged: Mapping[int, Sequence[float]] | None = None) -> dict[int, list[float]]:
    """Return the length in ns of each rank's steps that a next one bounds, or of the only one, in full swing.

    A changed graph begins as the unchanged one does: the first step then gains less, or more, than those that follow.
    `unchanged`: where ranks drift by chance, the unchanged graph's steps: only what they drift beyond those counts.
    Raises RunError where something waits for what never comes.
    """
    if any(len(own) < 2 for own in graph.steps.values()):
        return bounded(simulate(graph).step_ns(graph))
    timing = simulate_begins(graph)
    starts = starts_of(graph, timing, unchanged)
    steps = bounded_steps(graph, timing)
    # a host that loses its lead is as far from full swing as one that gains it: its first step is too short
    drift = max(max(start.later, abs(start.lead)) for start in starts.values())
    if drift <= _IN_SWING * max(max(own) for own in steps.values()):
        return steps
    graph = started(graph, starts)
    return bounded_steps(graph, simulate_begins(graph))


def _placed(graph: Graph, rank: int) -> Sequence[int]:
    """Return the activities of a rank that begin no earlier than at a given instant: launched before the trace."""
    nodes = graph.activity_columns()
    rows: list[int] = np.flatnonzero((nodes["not_before"] > 0) & (nodes["rank"] == rank)).tolist()
    return rows


class Recording(msgspec.Struct, frozen=True):
    """What recording costs a run, at the scale that was found, and how its ranks begin without it."""

    cost: HostCost
    scale: Interval
    starts: Mapping[int, Start]
    devices: float = 1.0  # how many times as long the devices take as in the trace
    copies: float = 0.0  # how far copies of pageable memory are on the way to the window's quickest
    copies_high: float = 0.0  # the same, at most
    operators: float = 1.0  # how many times as long those of CPUs take as in the trace, beside what they are charged
    fitted: bool = False  # the step at that scale is the untraced one, which is known, and so it is at the bounds

    def taken_out(
        self, graph: Graph, scale: float, *, quickest: bool = False, times: Mapping[int, float] | None = None
    ) -> Graph:
        """Return a graph of the traces as it would run without recording, if that costs so much.

        `quickest`: with copies of pageable memory as quick as they may be. `times`: see `without_recording`.
        """
        graph = with_quicker_copies(graph, self.copies_high if quickest else self.copies)
        graph = with_quicker_operators(on_slower_devices(graph, self.devices), self.operators)
        lighter = without_recording(graph, self.cost, scale, times)
        return started(lighter, self.starts)
