"""Which function of a script runs when: of those that stacks show, the innermost that is the script's own.

What costs a step is told with the function that holds most of it. Where several do, it may be one that calls them; but
a function that the rest of the step runs in as well, as a loop or a step of training is, tells nothing apart: that one
is told only of what it does itself.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from scalescope.scaling.rank.step_sources.steps import Steps
from scalescope.scaling.trace.intervals import Intervals, Ints, clip, covers, distinct, union
from scalescope.scaling.trace.trace import Trace

#: Functions of a script's own that are open at an instant, the innermost last: `job.py(23): dashboard`.
Stack = tuple[str, ...]
_LINE = re.compile(r"\(\d+\)(?=: )")
#: A function that so much of something lies in is told of it.
MOST = 0.75
#: A function that more of the rest of the steps lies in than this is told only of what it does itself.
_OF_THE_REST = 0.5


@dataclass(frozen=True, slots=True)
class OwnCode:
    """A rank's stacks: by thread, from when on which one is open, ascending; none where stacks were not recorded."""

    stacks: tuple[Stack, ...] = ()
    threads: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)  # instants, absolute ns, and indices of stacks
    span_ns: int = 0  # of the steps
    held_ns: dict[str, int] = field(default_factory=dict)  # for how long of that a thread is in a function

    def __bool__(self) -> bool:
        return bool(self.threads)

    def at(self, instants: Ints, threads: Ints) -> Ints:
        """Return the index of the stack that is open at each instant on its thread, 0 for none."""
        found = np.zeros(instants.size, np.int64)
        for thread, (since, stack) in self.threads.items():
            own = np.flatnonzero(threads == thread)
            before = np.searchsorted(since, instants[own], side="right") - 1
            found[own] = np.where(before >= 0, stack[np.maximum(before, 0)], 0)
        return found

    def while_open(self, stretches: Intervals, thread: int) -> dict[Stack, float]:
        """Return for how long of some stretches each stack is open on a thread, ns; () for none of them."""
        some = union(stretches)
        since, _ = self.threads.get(thread, (np.empty(0, np.int64), np.empty(0, np.int64)))
        edges = distinct(np.concatenate((*some, since)))
        starts, ends = edges[:-1], edges[1:]
        inside = covers(some, starts)
        starts, ends = starts[inside], ends[inside]
        open_ones = self.at(starts, np.full(starts.size, thread, np.int64))
        return self._added_up(open_ones, ends - starts)

    def at_calls(self, instants: Ints, threads: Ints, weights: Ints) -> dict[Stack, float]:
        """Return how much each stack has of what begins at these instants on these threads."""
        return self._added_up(self.at(instants, threads), weights)

    def during(
        self, stretches: Intervals, loop: int, others: Iterable[int] = (), *, in_pass: bool = False
    ) -> str | None:
        """Return the function that stretches lie in: of the loop's thread, or of another one that is in a script's own.

        As a thread of autograd's is, whose hooks run while the loop's waits for the backward pass. `in_pass`: what lies
        there within a pass is none of the loop's own doing.
        """
        if not self:
            return None
        found: dict[Stack, float] = {}
        for thread in (*(one for one in others if one != loop), loop):
            found = self.while_open(stretches, thread)
            if sum(time for stack, time in found.items() if stack) >= MOST * sum(found.values()) > 0:
                break
        return line_of(found, [self], host_ns=sum(found.values()), itself=not in_pass)

    def _added_up(self, stacks: Ints, weights: Ints) -> dict[Stack, float]:
        sums = np.bincount(stacks, weights, minlength=len(self.stacks)) if stacks.size else np.zeros(0)
        return {self.stacks[at]: float(sums[at]) for at in np.flatnonzero(sums).tolist()}


NO_CODE = OwnCode()


def own_code(trace: Trace, steps: Steps) -> OwnCode:
    """Return a trace's stacks, of which the script's own functions alone are kept.

    The profiler names a function with the line where it begins; one that has begun before, with that on which recording
    did. So one that goes on for all the steps is told without a line.
    """
    lines = trace.lines
    if not len(lines):
        return NO_CODE
    base = trace.header.base_ns
    stacks: dict[Stack, int] = {(): 0}
    threads = {}
    begin, end = int(lines.start.min()) + base, int(lines.end.max()) + base
    if len(steps):
        begin, end = int(steps.start[0]), int(steps.end[-1])
    held: dict[str, int] = defaultdict(int)
    for thread in np.unique(lines.thread).tolist():
        own = np.flatnonzero(lines.thread == thread)
        own = own[np.lexsort((-lines.end[own], lines.start[own]))]
        since, until = lines.start[own] + base, lines.end[own] + base
        around = ((since <= begin) & (until >= end)).tolist()
        called = [
            _LINE.sub("", trace.names[name]) if over else trace.names[name]
            for name, over in zip(lines.name[own].tolist(), around, strict=True)
        ]
        threads[thread] = _opened(zip(since.tolist(), until.tolist(), called, strict=True), stacks)
    found = OwnCode(tuple(stacks), threads, end - begin, held)
    for thread in threads:
        whole = clip(Intervals(np.array([begin], np.int64), np.array([end], np.int64)), begin, end)
        for open_ones, time in found.while_open(whole, thread).items():
            for name in set(open_ones):
                held[name] += round(time)
    return found


def _opened(calls: Iterable[tuple[int, int, str]], stacks: dict[Stack, int]) -> tuple[Ints, Ints]:
    """Return from when on which stack is open, of one thread's calls (begin, end, name) in order of their begins."""
    since: list[int] = []
    found: list[int] = []
    open_ones: list[tuple[int, Stack]] = []  # ends, and the stack with each

    def close(until: int) -> None:
        while open_ones and open_ones[-1][0] <= until:
            over, _ = open_ones.pop()
            since.append(max(over, since[-1]))
            found.append(stacks[open_ones[-1][1] if open_ones else ()])

    for begin, end, name in calls:
        close(begin)
        stack = (*(open_ones[-1][1] if open_ones else ()), name)
        open_ones.append((end, stack))
        since.append(max(begin, since[-1] if since else begin))
        found.append(stacks.setdefault(stack, len(stacks)))
    close(np.iinfo(np.int64).max)
    return np.array(since, np.int64), np.array(found, np.int64)


def line_of(
    time: Mapping[Stack, float], codes: Iterable[OwnCode], *, host_ns: float = 0.0, itself: bool = True
) -> str | None:
    """Return the innermost function that holds most of something, by how much of it each stack has; None for none.

    `codes`: of the ranks that it is of. `host_ns`: for how long their hosts are at it, where that is known. `itself`:
    also where the rest of the steps lies in that function, too, if most of it is done by no function that it calls.
    """
    whole = sum(time.values())
    within: dict[str, float] = defaultdict(float)
    depth: dict[str, float] = defaultdict(float)
    directly: dict[str, float] = defaultdict(float)
    for stack, share in time.items():
        for name in set(stack):
            within[name] += share
            depth[name] += share * (len(stack) - stack[::-1].index(name))
        if stack:
            directly[stack[-1]] += share
    holding = [name for name, share in within.items() if share >= MOST * whole > 0]
    if not holding:
        return None
    inner = max(holding, key=lambda name: depth[name] / within[name])
    span = sum(code.span_ns for code in codes)
    held = sum(code.held_ns.get(inner, 0) for code in codes)
    rest = span - host_ns
    if rest > 0 and held - host_ns <= _OF_THE_REST * rest:
        return inner
    return inner if itself and directly[inner] >= MOST * whole else None
