"""Runs a graph: an event-driven simulation of all ranks at once.

Hosts make their calls in order, streams run their activities in order, collectives move data once all members have
begun. What runs side by side slows down as the graph's contention says: compute on a rank proceeds at 1/(1 + inflation)
while any collective runs on that rank, and a transfer at 1 - (1 - rate) × (share of its members that compute). Speeds
change when something begins or ends, so remaining work is settled then.

The heap is the clock; ties go by the order in which events were made, so that a run is repeatable.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from records.errors import RunError
from scaling.kernel_names import short_name
from scaling.replay.graph import Graph
from scaling.timeline import COMMUNICATION, COMPUTE

_BEGIN, _END, _TRANSFERRED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Timing:
    """When everything ran, ns, by activity."""

    begin: list[float]
    end: list[float]

    def step_ns(self, graph: Graph) -> dict[int, list[float]]:
        """Return the length of each step on each rank; the last ends with the last of its own activities."""
        last_step: dict[int, float] = {}
        for at in graph.living():
            node = graph.activities[at]
            if node.step >= 0:
                last_step[node.rank] = max(last_step.get(node.rank, 0.0), self.end[at])
        found: dict[int, list[float]] = {}
        for rank in graph.ranks:
            edges = [self.begin[at] for at in graph.steps[rank]]
            close = last_step.get(rank, max((self.end[at] for at in graph.steps[rank]), default=0.0))
            edges.append(max(close, edges[-1]) if edges else close)
            found[rank] = [right - left for left, right in pairwise(edges)]
        return found


def bounded(steps: Mapping[int, list[float]]) -> dict[int, list[float]]:
    """Return each rank's steps without the last, which no next one bounds, where there are others."""
    return {rank: own[:-1] if len(own) > 1 else own for rank, own in steps.items()}


def mean_step_ns(steps: Mapping[int, list[float]]) -> float:
    """Return the mean over ranks of each rank's mean step."""
    means = [sum(own) / len(own) for own in steps.values() if own]
    return sum(means) / len(means) if means else 0.0


def simulate(graph: Graph) -> Timing:
    """Run the graph. Raises RunError where something waits for what never comes, which names it."""
    return _Run(graph).run()


class _Run:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        count = len(graph.activities)
        self.begin = [-1.0] * count
        self.end = [-1.0] * count
        self.open = [0] * count  # how many things each activity still waits for
        self.free = [node.not_before for node in graph.activities]  # when the last of those so far was over
        self.next: list[int] = [-1] * count  # on its stream
        self.users: list[list[int]] = [[] for _ in range(count)]
        self.hosts_waiting: dict[int, set[int]] = {}  # by awaited activity: the ranks
        self.made_calls = dict.fromkeys(graph.ranks, 0)  # how many calls have made their launch
        self.heap: list[tuple[float, int, int, int, int]] = []
        self.made = 0
        # the state of what runs
        self.left = [node.work_ns for node in graph.activities]
        self.since = [0.0] * count
        self.version = [0] * count
        self.computing: dict[int, set[int]] = {rank: set() for rank in graph.ranks}
        self.communicating = dict.fromkeys(graph.ranks, 0)
        self.position = dict.fromkeys(graph.ranks, 0)
        self.clock = dict(graph.begins)
        self.arrived = [0] * len(graph.transfers)
        self.moving: dict[int, set[int]] = {rank: set() for rank in graph.ranks}  # transfers in flight, of a member
        self.transfer_left = [one.work_ns for one in graph.transfers]
        self.transfer_since = [0.0] * len(graph.transfers)
        self.transfer_version = [0] * len(graph.transfers)
        self.slow = 1.0 / (1.0 + graph.contention.inflation)
        self.loss = 1.0 - graph.contention.transfer_rate

    def run(self) -> Timing:
        """Return when each activity begins and ends. Raises RunError where one waits for what never comes."""
        living = self.graph.living()
        self._link(living)
        for rank in self.graph.ranks:
            self._host(rank)
        heap = self.heap
        while heap:
            now, _, what, at, version = heapq.heappop(heap)
            if what == _BEGIN:
                self._begin(at, now)
            elif what == _END:
                if version == self.version[at]:
                    self._finish(at, now)
            elif version == self.transfer_version[at]:
                self._transferred(at, now)
        stuck = [at for at in living if self.end[at] < 0]
        if stuck:
            node = self.graph.activities[stuck[0]]
            raise RunError(
                f"the replay stops at {short_name(node.name)} on rank {node.rank}: what it waits for never comes "
                f"({len(stuck)} activities are left)"
            )
        return Timing(self.begin, self.end)

    def _link(self, living: Iterable[int]) -> None:
        """Count what each activity waits for; those that wait for nothing may begin."""
        graph = self.graph
        launched = {call.launches for calls in graph.calls.values() for call in calls if call.launches >= 0}
        for at in living:
            node = graph.activities[at]
            self.open[at] = len(node.after) + (at in launched)
            for other in node.after:
                self.users[other].append(at)
        for streams in graph.order.values():
            for stream in streams:
                for left, right in pairwise(stream):
                    self.next[left] = right
                    self.open[right] += 1
        for at in living:
            if self.open[at] == 0:
                self._push(self.free[at] + graph.activities[at].dispatch_ns, _BEGIN, at, 0)

    def _push(self, when: float, what: int, at: int, version: int) -> None:
        self.made += 1
        heapq.heappush(self.heap, (when, self.made, what, at, version))

    def _host(self, rank: int) -> None:
        """Let a rank's host make calls until one has to wait for what has not happened yet."""
        calls, latency = self.graph.calls[rank], self.graph.latency[rank]
        at, clock = self.position[rank], self.clock[rank]
        while at < len(calls):
            call = calls[at]
            begun = clock + call.think_ns
            if call.launches >= 0 and at >= self.made_calls[rank]:
                self.made_calls[rank] = at + 1  # a host that waits comes back to the same call
                self._over(call.launches, begun + latency)
            if call.awaits >= 0:
                happened = (self.begin if call.room else self.end)[call.awaits]
                if happened < 0:
                    self.hosts_waiting.setdefault(call.awaits, set()).add(rank)
                    break
                clock = max(begun, happened + call.until_ns)
            else:
                clock = begun + call.duration_ns
            at += 1
        self.position[rank], self.clock[rank] = at, clock

    def _over(self, activity: int, when: float) -> None:
        """One of the things that an activity waits for is over."""
        if when > self.free[activity]:
            self.free[activity] = when
        self.open[activity] -= 1
        if self.open[activity] == 0:
            self._push(self.free[activity] + self.graph.activities[activity].dispatch_ns, _BEGIN, activity, 0)

    def _begin(self, at: int, now: float) -> None:
        node = self.graph.activities[at]
        self.begin[at] = now
        rank = node.rank
        if node.kind == COMPUTE:
            self._change_computing(rank, at, now, begins=True)
            self.since[at] = now
            speed = self.slow if self.communicating[rank] else 1.0
            self._push(now + self.left[at] / speed, _END, at, self.version[at])
        elif node.kind == COMMUNICATION:
            self._change_communicating(rank, 1, now)
            if node.collective < 0:
                self._push(now + node.work_ns, _END, at, 0)
            else:
                self._arrive(node.collective, now)
        else:
            self._push(now + node.work_ns, _END, at, 0)
        self._wake_hosts(at)

    def _finish(self, at: int, now: float) -> None:
        node = self.graph.activities[at]
        self.end[at] = now
        if node.kind == COMPUTE:
            self._change_computing(node.rank, at, now, begins=False)
        elif node.kind == COMMUNICATION:
            self._change_communicating(node.rank, -1, now)
        if self.next[at] >= 0:
            self._over(self.next[at], now)
        for user in self.users[at]:
            self._over(user, now)
        self._wake_hosts(at)

    def _wake_hosts(self, at: int) -> None:
        for rank in sorted(self.hosts_waiting.pop(at, ())):
            self._host(rank)

    def _change_computing(self, rank: int, at: int, now: float, *, begins: bool) -> None:
        """A kernel begins or ends: where that changes whether the rank computes, its transfers change speed."""
        running = self.computing[rank]
        changes = self.loss and self.moving[rank] and len(running) == (0 if begins else 1)
        if changes:
            for transfer in self.moving[rank]:
                self._settle_transfer(transfer, now)
        running.add(at) if begins else running.discard(at)
        if changes:
            for transfer in self.moving[rank]:
                self._aim_transfer(transfer, now)

    def _change_communicating(self, rank: int, by: int, now: float) -> None:
        """A collective begins or ends: the rank's kernels change speed where it is the first or the last."""
        before = self.communicating[rank]
        self.communicating[rank] = after = before + by
        if (before == 0) == (after == 0) or self.slow == 1.0:
            return
        old, new = (1.0, self.slow) if before == 0 else (self.slow, 1.0)
        for at in self.computing[rank]:
            self.left[at] -= (now - self.since[at]) * old
            self.since[at] = now
            self.version[at] += 1
            self._push(now + max(self.left[at], 0.0) / new, _END, at, self.version[at])

    def _arrive(self, transfer: int, now: float) -> None:
        self.arrived[transfer] += 1
        members = self.graph.transfers[transfer].members
        if self.arrived[transfer] == len(members):
            for rank in members:
                self.moving[rank].add(transfer)
            self.transfer_since[transfer] = now
            self._aim_transfer(transfer, now)

    def _speed(self, transfer: int) -> float:
        members = self.graph.transfers[transfer].members
        busy = sum(bool(self.computing[rank]) for rank in members)
        return 1.0 - self.loss * busy / len(members)

    def _settle_transfer(self, transfer: int, now: float) -> None:
        self.transfer_left[transfer] -= (now - self.transfer_since[transfer]) * self._speed(transfer)
        self.transfer_since[transfer] = now

    def _aim_transfer(self, transfer: int, now: float) -> None:
        self.transfer_version[transfer] += 1
        left = max(self.transfer_left[transfer], 0.0)
        self._push(now + left / self._speed(transfer), _TRANSFERRED, transfer, self.transfer_version[transfer])

    def _transferred(self, transfer: int, now: float) -> None:
        for rank, at in self.graph.transfers[transfer].members.items():
            self.moving[rank].discard(transfer)
            self._push(now + self.graph.activities[at].skew_ns, _END, at, 0)
