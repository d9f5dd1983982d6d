"""The replay's event loop: a simulation of all ranks at once.

Hosts make their calls in order, streams run their activities in order, collectives move data once all members have
begun. What runs side by side slows down as the graph's contention says: a kernel on a rank proceeds at 1/(1 + its
inflation) while any collective runs on that rank, and a transfer at 1 - (1 - rate) × (share of its members that
compute). Speeds change when something begins or ends, so remaining work is settled then.

The heap is the clock; ties go by the order in which events were made, so that a run is repeatable. What nobody notices
is no event: an activity's begin is known as soon as nothing holds it up, and a kernel's begin matters to others only
where data move beside it.

events.c is this loop once more, for C: what changes here changes there, and a test holds the two to the same bits.
"""

from array import array
from collections.abc import Set
from heapq import heappop, heappush
from itertools import pairwise

from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE
from scalescope.scaling.replay.engine.timing import Timing
from scalescope.scaling.replay.graph import Graph


def run(graph: Graph, until: Set[int]) -> tuple[Timing, bool]:
    """Return when each activity begins and ends, and whether all of `until` have begun; of nothing, never.

    With `until`, what is known once all of those have begun.
    """
    return _Events(graph).run(until)


class _Events:
    """One run. Events are ends of activities, begins that somebody notices, and transfers that are through."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        nodes = graph.activities
        count = len(nodes)
        self.begin = [-1.0] * count
        self.end = [-1.0] * count
        self.launch = [-1.0] * count
        self.loading: dict[int, list[tuple[float, float]]] = {rank: [] for rank in graph.ranks}
        self.open = [0] * count  # how many things each activity still waits for
        self.free = [node.not_before for node in nodes]  # when the last of those so far was over
        self.next = [-1] * count  # on its stream
        self.users: dict[int, list[int]] = {}
        #: activities whose begin (or end) the host of their rank awaits
        self.awaited_begins: set[int] = set()
        self.awaited_ends: set[int] = set()
        self.unbegun: set[int] = set()  # of the activities that a run is to go on until
        self.made_calls = dict.fromkeys(graph.ranks, 0)  # how many calls have made their launch
        self.heap: list[tuple[float, int, int]] = []  # (when, the event's number, what: see `run`)
        self.made = 0
        # the state of what runs
        self.kind = [node.kind for node in nodes]
        self.rank = [node.rank for node in nodes]
        self.dispatch = [node.dispatch_ns for node in nodes]
        self.late = [node.late_ns for node in nodes]
        self.left = list(graph.work_ns)
        self.since = [0.0] * count
        self.due = [0] * count  # the number of the event that ends it, unless its speed changes
        #: kernels that run, and where no transfer moves on the rank, those that only their begin is ahead of; in the
        #: order in which they came, which a set would not keep
        self.computing: dict[int, dict[int, None]] = {rank: {} for rank in graph.ranks}
        self.communicating = dict.fromkeys(graph.ranks, 0)
        self.position = dict.fromkeys(graph.ranks, 0)
        self.clock = dict(graph.begins)
        self.arrived = [0] * len(graph.transfers)
        #: by rank: transfers in flight that compute on it slows
        self.moving: dict[int, dict[int, None]] = {rank: {} for rank in graph.ranks}
        self.transfer_left = [one.work_ns for one in graph.transfers]
        self.transfer_since = [0.0] * len(graph.transfers)
        self.transfer_due = [0] * len(graph.transfers)
        self.slow = (1.0 / (1.0 + graph.inflation())).tolist()  # by activity: its speed beside a collective
        self.slows = graph.contention.inflation > 0
        self.loss = 1.0 - graph.contention.transfer_rate

    def run(self, until: Set[int]) -> tuple[Timing, bool]:
        """See `run`."""
        self.unbegun = set(until) or {-1}  # which never begins: all run
        self._link()
        for rank in self.graph.ranks:
            self._host(rank)
        heap, count, due, end = self.heap, len(self.kind), self.due, self.end
        kind, of_rank, users, waits, free = self.kind, self.rank, self.users, self.open, self.free
        while heap and self.unbegun:
            now, number, what = heappop(heap)
            if what < count:  # an activity's end
                if number != due[what]:
                    continue
                end[what] = now
                if kind[what] == COMPUTE:
                    rank = of_rank[what]
                    if self.moving[rank]:
                        self._stop_computing(what, now)
                    else:
                        self.computing[rank].pop(what, None)
                elif kind[what] == COMMUNICATION:
                    self._change_communicating(of_rank[what], -1, now)
                following = self.next[what]
                if following >= 0:  # as `_over` does; calls are what this loop spends its time on
                    if now > free[following]:
                        free[following] = now
                    waits[following] -= 1
                    if waits[following] == 0:
                        self._release(following)
                if what in users:
                    for user in users[what]:
                        self._over(user, now)
                if what in self.awaited_ends:
                    self.awaited_ends.discard(what)
                    self._host(of_rank[what])
            elif what < 2 * count:
                self._begin(what - count, now)
            elif number == self.transfer_due[what - 2 * count]:
                self._transferred(what - 2 * count, now)
        begin, over, launch = (array("d", one) for one in (self.begin, end, self.launch))
        return Timing(begin, over, launch, self.loading), not self.unbegun

    def _link(self) -> None:
        """Count what each activity waits for; those that wait for nothing may begin."""
        graph, waits = self.graph, self.open
        for calls in graph.calls.values():
            for call in calls:
                if call.launches >= 0:
                    waits[call.launches] = 1
        for streams in graph.order.values():
            for stream in streams:
                for left, right in pairwise(stream):
                    self.next[left] = right
                    waits[right] += 1
        for at, others in graph.after.items():
            waits[at] += len(others)
            for other in others:
                self.users.setdefault(other, []).append(at)
        for at in graph.living():
            if waits[at] == 0:
                self._release(at)

    def _push(self, when: float, what: int) -> int:
        self.made += 1
        heappush(self.heap, (when, self.made, what))
        return self.made

    def _host(self, rank: int) -> None:
        """Let a rank's host make calls until one has to wait for what has not happened yet."""
        calls, latency = self.graph.calls[rank], self.graph.latency[rank]
        at, clock, made = self.position[rank], self.clock[rank], self.made_calls[rank]
        while at < len(calls):
            call = calls[at]
            begun = clock + call.think_ns
            if call.launches >= 0 and at >= made:
                made = at + 1  # a host that waits comes back to the same call
                self.launch[call.launches] = begun
                self._over(call.launches, begun + latency + self.late[call.launches])
            if call.awaits >= 0:
                happened = (self.begin if call.room else self.end)[call.awaits]
                if happened < 0:
                    (self.awaited_begins if call.room else self.awaited_ends).add(call.awaits)
                    break
                clock = max(begun, happened + call.until_ns)
            else:
                clock = begun + call.duration_ns
            if call.data_ns:
                self.loading[rank].append((begun - call.data_ns, begun))
            at += 1
        self.position[rank], self.clock[rank], self.made_calls[rank] = at, clock, made

    def _over(self, at: int, when: float) -> None:
        """One of the things that an activity waits for is over."""
        if when > self.free[at]:
            self.free[at] = when
        self.open[at] -= 1
        if self.open[at] == 0:
            self._release(at)

    def _release(self, at: int) -> None:
        """Nothing holds an activity up any more: when it begins is known from here on."""
        begins = self.begin[at] = self.free[at] + self.dispatch[at]
        kind, rank = self.kind[at], self.rank[at]
        if kind == COMPUTE and not self.moving[rank]:
            # as `_compute` does
            self.computing[rank][at] = None
            self.since[at] = begins
            speed = self.slow[at] if self.communicating[rank] else 1.0
            self.made = self.due[at] = number = self.made + 1
            heappush(self.heap, (begins + self.left[at] / speed, number, at))
        elif kind in (COMPUTE, COMMUNICATION):
            self._push(begins, at + len(self.kind))
        else:
            self.due[at] = self._push(begins + self.left[at], at)
        self.unbegun.discard(at)
        if at in self.awaited_begins:
            self.awaited_begins.discard(at)
            self._host(rank)

    def _compute(self, at: int, begins: float) -> None:
        rank = self.rank[at]
        self.computing[rank][at] = None
        self.since[at] = begins
        speed = self.slow[at] if self.communicating[rank] else 1.0
        self.due[at] = self._push(begins + self.left[at] / speed, at)

    def _begin(self, at: int, now: float) -> None:
        """A collective begins, or a kernel beside which data may move."""
        rank = self.rank[at]
        if self.kind[at] == COMMUNICATION:
            self._change_communicating(rank, 1, now)
            collective = self.graph.activities[at].collective
            if collective < 0:
                self.due[at] = self._push(now + self.left[at], at)
            else:
                self._arrive(collective, now)
            return
        first = self.moving[rank] and not self.computing[rank]
        if first:
            self._settle_transfers(rank, now)
        self._compute(at, now)
        if first:
            self._aim_transfers(rank, now)

    def _stop_computing(self, at: int, now: float) -> None:
        """A kernel ends beside which data move."""
        rank = self.rank[at]
        running = self.computing[rank]
        if len(running) == 1:
            self._settle_transfers(rank, now)
        running.pop(at, None)
        if not running:
            self._aim_transfers(rank, now)

    def _change_communicating(self, rank: int, by: int, now: float) -> None:
        """A collective begins or ends: the rank's kernels change speed where it is the first or the last."""
        before = self.communicating[rank]
        self.communicating[rank] = after = before + by
        if (before == 0) == (after == 0) or not self.slows:
            return
        for at in self.computing[rank]:
            old, new = (1.0, self.slow[at]) if before == 0 else (self.slow[at], 1.0)
            if self.since[at] < now:
                self.left[at] -= (now - self.since[at]) * old
                self.since[at] = now
            self.due[at] = self._push(self.since[at] + max(self.left[at], 0.0) / new, at)

    def _arrive(self, transfer: int, now: float) -> None:
        self.arrived[transfer] += 1
        members = self.graph.transfers[transfer].members
        if self.arrived[transfer] < len(members):
            return
        if self.loss:
            for rank in members:
                self._notice_begins(rank, now)
                self.moving[rank][transfer] = None
        self.transfer_since[transfer] = now
        self._aim_transfer(transfer, now)

    def _notice_begins(self, rank: int, now: float) -> None:
        """Data move on a rank from now on: make events of the begins that are still ahead."""
        for at in [at for at in self.computing[rank] if self.since[at] > now]:
            del self.computing[rank][at]
            self.due[at] = 0
            self._push(self.since[at], at + len(self.kind))

    def _speed(self, transfer: int) -> float:
        members = self.graph.transfers[transfer].members
        busy = sum(bool(self.computing[rank]) for rank in members) if self.loss else 0
        return 1.0 - self.loss * busy / len(members)

    def _settle_transfers(self, rank: int, now: float) -> None:
        for transfer in self.moving[rank]:
            self.transfer_left[transfer] -= (now - self.transfer_since[transfer]) * self._speed(transfer)
            self.transfer_since[transfer] = now

    def _aim_transfers(self, rank: int, now: float) -> None:
        for transfer in self.moving[rank]:
            self._aim_transfer(transfer, now)

    def _aim_transfer(self, transfer: int, now: float) -> None:
        left = max(self.transfer_left[transfer], 0.0)
        what = transfer + 2 * len(self.kind)
        self.transfer_due[transfer] = self._push(now + left / self._speed(transfer), what)

    def _transferred(self, transfer: int, now: float) -> None:
        for rank, at in self.graph.transfers[transfer].members.items():
            self.moving[rank].pop(transfer, None)
            self.due[at] = self._push(now + self.graph.activities[at].skew_ns, at)
