"""Kernels on several streams of one device, as cuDNN's recurrent layers have them: what they wait for beside their own.

Which event a stream waits for is not in the trace. While its host is late, each kernel begins as it is launched, and
nothing tells what else it would have waited for, nor whether the device has room for it beside another: a host that is
ahead would then have all streams run at once, and the device be done in less time than it computes for. So what was
launched before, and had ended, goes before; what ran side by side may do so again.

An event comes as something ends. A kernel that begins in the midst of others, later than anything tells, had no room on
the device until some of their blocks were through: it begins as late again.
"""

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.graph import Activity, Graph
from scalescope.scaling.trace.intervals import Intervals, covered_before

#: A device is full of other streams' kernels where those run for so much of what a kernel is late by.
_FULL = 0.95
#: What waits for room on the device begins as the last blocks of a kernel leave it: so long before that one's end, ns.
_LAST_BLOCKS_NS = 10_000

_Key = tuple[int, str, int]  # a launch's stream, its name, and its ordinal in the step


def keep_turns(graph: Graph, rank: int, launched: Mapping[int, float]) -> None:
    """Let each kernel of a rank wait for those of its other streams that were launched, and had ended, before it did.

    `launched`: when each activity was.
    """
    streams = [
        [at for at in own if graph.activities[at].kind == COMPUTE and at in launched] for own in graph.order[rank]
    ]
    streams = [own for own in streams if own]
    if len(streams) < 2:
        return
    passed = [0] * len(streams)  # how many of each stream had ended
    waited = [[-1] * len(streams) for _ in streams]  # by stream: for which one of each other one it has waited
    begun = sorted((graph.activities[at].traced_start, which, at) for which, own in enumerate(streams) for at in own)
    for instant, which, at in begun:
        for other, own in enumerate(streams):
            while passed[other] < len(own) and graph.activities[own[passed[other]]].traced_end <= instant:
                passed[other] += 1
            last = passed[other] - 1
            if other != which and last > waited[which][other] and launched[own[last]] <= launched[at]:
                waited[which][other] = last
                graph.after.setdefault(at, []).append(own[last])


def had_no_room(node: Activity, late_ns: float, computing: Intervals) -> bool:
    """Tell whether other streams' kernels ran while a kernel was late, and not only in the gaps of its own stream."""
    if node.kind != COMPUTE:
        return False
    span = np.array([node.traced_start - round(late_ns), node.traced_start], np.int64)
    begun, over = covered_before(computing, span).tolist()
    return bool(over - begun >= _FULL * late_ns)


class Ends:
    """When a rank's activities ended, in order: for which one of them another stream may have waited."""

    def __init__(self, graph: Graph, rank: int) -> None:
        self._graph, self._rank = graph, rank
        self.ends = sorted((graph.activities[at].traced_end, at) for stream in graph.order[rank] for at in stream)
        self._times = np.array([end for end, _ in self.ends], np.int64)

    def right_before(self, at: int, before: int, free: float, longest_ns: float) -> int:
        """Return the activity of another stream whose end an idle stream most likely waited for; -1 for none.

        It ended no earlier than `longest_ns` before; one that ends a little later counts where it has run since before
        the stream was `free`, for as long as it waited. `before`: the one before on the stream.
        """
        node = self._graph.activities[at]
        place = int(np.searchsorted(self._times, node.traced_start + _LAST_BLOCKS_NS, side="right")) - 1
        while place >= 0 and node.traced_start - self.ends[place][0] <= longest_ns:
            found = self.ends[place][1]
            other = self._graph.activities[found]
            has_ended = other.traced_end <= node.traced_start or other.traced_start <= free
            if other.stream != node.stream and found != before and has_ended:
                return -1 if self._began_before(at, found) else found
            place -= 1
        return -1

    def _began_before(self, at: int, other: int) -> bool:
        """Tell whether the same launch began before the same other one ended in another step: it waits for none such.

        A collective that finds no room on the device begins as whatever runs there ends: a host that is far ahead has
        another kernel end then than one that is late has.
        """
        steps = self._steps
        (step, key), (theirs, other_key) = self._keys[at], self._keys[other]
        for one, launches in steps.items():
            again, ended = launches.get(key), steps.get(one + theirs - step, {}).get(other_key)
            if one != step and again is not None and ended is not None:
                begun = self._graph.activities[again].traced_start
                if begun < self._graph.activities[ended].traced_end - _LAST_BLOCKS_NS:
                    return True
        return False

    @cached_property
    def _keys(self) -> dict[int, tuple[int, _Key]]:
        """By activity: its step, and which launch of that it is."""
        found: dict[int, tuple[int, _Key]] = {}
        for stream in self._graph.order[self._rank]:
            ordinals: dict[tuple[int, str], int] = {}
            for at in stream:
                node = self._graph.activities[at]
                ordinals[node.step, node.name] = ordinal = ordinals.get((node.step, node.name), -1) + 1
                found[at] = node.step, (node.stream, node.name, ordinal)
        return found

    @cached_property
    def _steps(self) -> dict[int, dict[_Key, int]]:
        """The activities by step and launch; of those before the first step not all are there."""
        found: dict[int, dict[_Key, int]] = {}
        for at, (step, key) in self._keys.items():
            if step >= 0:
                found.setdefault(step, {})[key] = at
        return found
