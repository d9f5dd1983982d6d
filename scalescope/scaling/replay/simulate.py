"""Runs a graph, and tells how long its steps then are.

Advice runs graphs some forty times, so the loop is compiled where it can be (events.c); else events.py runs it, which
comes to the same bits.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np

from scalescope.records.console import counted
from scalescope.records.errors import RunError
from scalescope.scaling.replay.engine import compiled, events
from scalescope.scaling.replay.engine.timing import Timing
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.trace.kernel_names import short_name


def bounded(steps: Mapping[int, list[float]]) -> dict[int, list[float]]:
    """Return each rank's steps without the last, which no next one bounds, where there are others."""
    return {rank: own[:-1] if len(own) > 1 else own for rank, own in steps.items()}


def mean_step_ns(steps: Mapping[int, list[float]]) -> float:
    """Return the mean over ranks of each rank's mean step."""
    means = [sum(own) / len(own) for own in steps.values() if own]
    return sum(means) / len(means) if means else 0.0


def simulate(graph: Graph) -> Timing:
    """Run the graph. Raises RunError where something waits for what never comes, which names it."""
    return _run(graph)


def simulate_steps(graph: Graph) -> dict[int, list[float]]:
    """Return the length in ns of each rank's steps that a next one bounds, or of the only one.

    Nothing is run beyond the last begin of a step: what comes later cannot change those lengths. Raises RunError where
    something before it waits for what never comes.
    """
    if any(len(steps) < 2 for steps in graph.steps.values()):
        return bounded(simulate(graph).step_ns(graph))
    return bounded_steps(graph, simulate_begins(graph))


def simulate_begins(graph: Graph) -> Timing:
    """Run the graph until the last step has begun on every rank; what comes later is not in the result.

    Raises RunError where something before it waits for what never comes.
    """
    return _run(graph, {at for steps in graph.steps.values() for at in steps})


def _run(graph: Graph, until: Iterable[int] = ()) -> Timing:
    """Return when each activity begins and ends; with `until`, what is known once all of those begin."""
    goals = frozenset(until)
    found = compiled.run(graph, goals)
    timing, reached = found if found is not None else events.run(graph, goals)
    if not reached:
        _refuse_stuck(graph, timing)
    return timing


def _refuse_stuck(graph: Graph, timing: Timing) -> None:
    """Raise RunError where something has not ended, which names the first."""
    if (np.asarray(timing.end) >= 0).all():
        return
    stuck = [at for at in graph.living() if timing.end[at] < 0]
    if stuck:
        node = graph.activities[stuck[0]]
        raise RunError(
            f"the replay stops at {short_name(node.name)} on rank {node.rank}: what it waits for never comes "
            f"(left: {counted(len(stuck), 'activity', 'activities')})"
        )


def bounded_steps(graph: Graph, timing: Timing) -> dict[int, list[float]]:
    """Return the length in ns of each rank's steps that a next one bounds.

    A host that was given a lead must not live on it: where it takes longer for its steps than the devices do, the lead
    is used up after a few more, and from then on all take as long as it does.
    """
    steps = {
        rank: [timing.begin[right] - timing.begin[left] for left, right in pairwise(own)]
        for rank, own in graph.steps.items()
    }
    beyond = host_bound_ns(graph, timing)
    return {rank: [one + beyond for one in own] for rank, own in steps.items()} if beyond > 0 else steps


def host_bound_ns(graph: Graph, timing: Timing) -> float:
    """Return by how much the slowest host with a lead takes longer for a step than the devices do, ns; 0 where none.

    What a host takes is what its own calls take: where it waits for its device, it is not the host that bounds.
    """
    passed = [own for own in graph.steps.values() if len(own) > 1]
    if not graph.led or not passed:
        return 0.0
    devices = [(timing.begin[own[-1]] - timing.begin[own[0]]) / (len(own) - 1) for own in passed]
    return max(0.0, max(host_work_ns(graph, rank) for rank in graph.led) - sum(devices) / len(devices))


def longest_host_ns(graph: Graph) -> float:
    """Return what the slowest host takes for a step where it waits for nothing, ns."""
    return max((host_work_ns(graph, rank) for rank in graph.ranks), default=0.0)


def host_work_ns(graph: Graph, rank: int) -> float:
    """Return what a rank's host takes for a step where it waits for nothing, ns."""
    calls = graph.call_columns(rank)
    spent = np.empty(2 * len(graph.calls[rank]))  # on the way to each call, then inside it
    spent[::2] = calls["think_ns"]
    spent[1::2] = np.where(calls["awaits"] < 0, calls["duration_ns"], 0.0)
    passed = np.cumsum(spent)[::2][np.isin(calls["launches"], graph.steps[rank])].tolist()
    return float(passed[-1] - passed[0]) / (len(passed) - 1) if len(passed) > 1 else 0.0
