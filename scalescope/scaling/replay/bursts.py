"""Gradients that come in bursts: a compiled backward pass hands over at its end what it made on the way.

Compiled around DDP, the graph is cut at bucket edges, and each burst is a bucket's. DDP around a compiled model gets
one burst at the very end, and no all-reduce is hidden. What each burst's gradients would be if they were handed over
as they are made: each ready when its share of the burst's bytes is, as a share of the compute that the burst ends.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Literal

from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.buckets import StepBuckets
from scalescope.scaling.replay.graph import Gradient, Graph, HostCall

#: Without a thread of its own, a backward pass is taken for the last two thirds of the compute: it does twice the
#: forward pass's arithmetic.
_BACKWARD_SHARE = 2 / 3
#: Of a step's compute: a view or a reference counted down between two gradients makes neither.
_NEXT_TO_NOTHING = 0.0002


Come = Literal["a bucket", "all at once"]


class Bursts:
    """How a graph's gradients come, and the graph with them spread: found once, since many cuts of it are tried."""

    def __init__(self, graph: Graph, steps: Sequence[StepBuckets]) -> None:
        self.come = comes_in_bursts(graph, steps)
        self._steps = steps
        self._spread: Graph | None = None

    def spread(self, graph: Graph) -> None:
        """Spread the gradients of the graph that this is of, or of one just like it, in place."""
        if self._spread is None:
            spread(graph, self._steps)
            self._spread = graph.copy()
        else:
            like = self._spread.copy()
            graph.calls, graph.order = like.calls, like.order


def comes_in_bursts(graph: Graph, steps: Sequence[StepBuckets]) -> Come | None:
    """Tell whether gradients come a bucket at a time, or several buckets in one burst; None: they come one by one."""
    step, rank = steps[0], graph.ranks[0]
    bursts = _bursts(graph, rank, step, _compute_launches(graph, rank).get(step.step, []))
    count = len(step.gradients[rank])
    if len(bursts) > count / 3:
        return None
    return "all at once" if len(step.cut) > 1 and len(bursts) < len(step.cut) / 2 else "a bucket"


def spread(graph: Graph, steps: Sequence[StepBuckets]) -> None:
    """Put each gradient of the steps into its bucket where the compute before its burst has made it, in place."""
    for rank in graph.ranks:
        behind: dict[int, list[int]] = {}
        launched = _compute_launches(graph, rank)
        thread = {call.launches: call.thread for call in graph.calls[rank] if call.launches >= 0}
        for step in steps:
            _find_makers(graph, rank, step, launched.get(step.step, []), thread, behind)
        moved = {at for group in behind.values() for at in group}
        own = {call.launches: call for call in graph.calls[rank] if call.launches in moved}
        calls: list[HostCall] = []
        for call in graph.calls[rank]:
            if call.launches in moved and call.launches >= 0:
                continue
            calls.append(call)
            calls += [own[at] for at in behind.get(call.launches, ())]
        graph.calls[rank] = calls
        position = {call.launches: index for index, call in enumerate(calls) if call.launches >= 0}
        for stream in graph.order[rank]:
            if moved.intersection(stream):
                stream.sort(key=lambda at: position.get(at, -1))


def _find_makers(
    graph: Graph,
    rank: int,
    step: StepBuckets,
    launched: Sequence[int],
    thread: Mapping[int, int],
    behind: dict[int, list[int]],
) -> None:
    """Add to `behind`, by the activity that has made it, the activities that put a step's gradients into buckets.

    `launched`: the step's compute in order; `thread`: the one that launched each activity.
    """
    position = {at: index for index, at in enumerate(launched)}
    begin = _backward_begins(graph, rank, launched, thread, step)
    for burst in _bursts(graph, rank, step, launched):
        first = position.get(burst[0].activity, begin)
        made_by = launched[begin:first]
        if made_by:
            done = list(accumulate(graph.work_ns[at] for at in made_by))
            whole = sum(one.bytes for one in burst)
            for one, held in zip(burst, accumulate(one.bytes for one in burst), strict=True):
                at = min(bisect_left(done, done[-1] * held / whole), len(made_by) - 1)
                behind.setdefault(made_by[at], []).append(one.activity)
        begin = position.get(burst[-1].activity, first) + 1


def _bursts(graph: Graph, rank: int, step: StepBuckets, launched: Sequence[int]) -> list[list[Gradient]]:
    """Return a step's gradients in groups between which something worth the name is computed."""
    place = {at: index for index, at in enumerate(launched)}
    done = [0.0, *accumulate(graph.work_ns[at] for at in launched)]
    bursts: list[list[Gradient]] = []
    last = -1
    for one in step.gradients[rank]:
        here = place.get(one.activity, -1)
        if not bursts or last < 0 or here < 0 or done[here] - done[last + 1] > _NEXT_TO_NOTHING * done[-1]:
            bursts.append([])
        bursts[-1].append(one)
        last = here
    return bursts


def _compute_launches(graph: Graph, rank: int) -> dict[int, list[int]]:
    """Return the compute that a rank launches, in order, by the step's number."""
    found: dict[int, list[int]] = {}
    for call in graph.calls[rank]:
        if call.launches >= 0 and graph.activities[call.launches].kind == COMPUTE:
            found.setdefault(graph.activities[call.launches].step, []).append(call.launches)
    return found


def _backward_begins(
    graph: Graph, rank: int, launched: Sequence[int], thread: Mapping[int, int], step: StepBuckets
) -> int:
    """Return where among the launches the backward pass begins: with the first of the thread that makes gradients."""
    first = step.gradients[rank][0].activity
    until = launched.index(first) if first in launched else len(launched)
    own = thread.get(first)
    begin = next((index for index, at in enumerate(launched) if thread.get(at) == own), 0)
    if begin:
        return min(begin, until)
    whole = sum(graph.work_ns[at] for at in launched[:until])
    passed = accumulate(graph.work_ns[at] for at in launched[:until])
    return next((index for index, done in enumerate(passed) if done >= (1 - _BACKWARD_SHARE) * whole), 0)
