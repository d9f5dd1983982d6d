"""Which of a host's operators of the forward pass lead to no gradient, though gradients are recorded there.

Autograd counts what it records: each node has a number, and an operator tells the next free one where it begins. So
what an operator that multiplies has recorded are the numbers from its own to those of the operators within, and the
node of the backward pass that takes it up has one of these. Where none does, in any backward pass of the window, no
loss uses the operator's result, or only as a fixed value. A cast does not count beside others: autocast keeps those of
weights, and the node of one leads to gradients through whatever multiplies by that weight next. Where no gradient is
recorded, as of weights that are frozen, nothing is counted: the number is that of what is recorded next. Under
`torch.no_grad()` none is told.

What a network takes that learns is wanted, though no gradient comes back to it: a generator's images, in the turn of
its critic. Nothing tells which tensors an operator has. But what goes on so is detached first, before layers that lead
to gradients; or, in the turn of the generator, the same layers lead to gradients by another backward pass.
"""

import bisect
import re
import sys
from collections import defaultdict
from collections.abc import Sequence, Set
from itertools import pairwise

import numpy as np

from scalescope.scaling.rank.records.own_code.metrics import FORWARD
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.trace.trace import Trace

#: So many operators in a row that multiply are a branch of a network: a metric has one or two, as a loss has.
_LAYERS = 3
#: What a node of the backward pass has in its name, and what makes a fixed value of a tensor.
_NODE, _DETACHED = "Backward", re.compile("aten::detach_?")
#: Of a pass that is written down: an operator that leads to gradients, and where other operators stand that do not.
_USED, _BREAK = "!", "| "
#: What a cast's node is called.
_CAST = "ToCopyBackward"


def unused_forward(trace: Trace, record: RankRecord, thread: int) -> list[int]:
    """Return what of a rank's activities is computed with gradients that no backward pass asks for, ascending."""
    rows, used = _unused_rows(trace, record, thread)
    spans = [range(row[0], row[-1] + 1) for row in rows if len(row) >= _LAYERS]
    if not spans:
        return []
    passes = _Passes(record, used, {at for own in spans for at in own})
    return [
        at for own in spans if not passes.want(own) for at in own
        if record.kind[at] == COMPUTE and record.stream[at] == 0
    ]  # fmt: skip


class _Passes:
    """A record's forward passes, each up to the first node of a backward pass."""

    def __init__(self, record: RankRecord, used: Sequence[int], unused: Set[int]) -> None:
        """`used`: the activities that multiply and lead to gradients, ascending; `unused`: rows of what does not."""
        self._record, self._used = record, used
        own = [at for at, kind in enumerate(record.kind) if kind == COMPUTE and record.stream[at] == 0]
        nodes = [_NODE in record.name[at] for at in own]
        self._nodes = [at for at, is_node in zip(own, nodes, strict=True) if is_node]
        self._detached = [at for at in own if _DETACHED.fullmatch(record.name[at])]
        layers = set(used)
        told: dict[int, list[str]] = defaultdict(list)
        for at, is_node in zip(own, nodes, strict=True):
            if not is_node:
                told[self._pass(at)].append(_BREAK if at in unused else f"{record.name[at]}{_USED * (at in layers)} ")
        #: by pass: its operators in a row, those that multiply and lead to gradients marked
        self._told = {number: "".join(names) for number, names in told.items()}

    def want(self, row: range) -> bool:
        """Tell whether a row's result is what a network that learns takes, most likely."""
        return self._goes_on(row) or self._learns_elsewhere(row)

    def _goes_on(self, row: range) -> bool:
        """Tell whether something is detached behind a row, before layers of its pass that lead to gradients."""
        starts, edges = self._record.start, self._record.edges
        ends = bisect.bisect_right(edges, starts[row[-1]])  # what the next step detaches is another batch's
        least = bisect.bisect_left(starts, edges[ends]) if ends < len(edges) else self._record.count
        over = _next(self._nodes, row[-1], least)
        detached = _next(self._detached, row[-1], over)
        return detached < over and _next(self._used, detached, over) < over

    def _learns_elsewhere(self, row: range) -> bool:
        """Tell whether the same operators lead to gradients in another pass, and in none of the row's own."""
        record, own = self._record, self._pass(row[0])
        names = (record.name[at] for at in row if record.kind[at] == COMPUTE and record.stream[at] == 0)
        same = re.compile("".join(rf"{re.escape(name)}{_USED}? " for name in names))
        found = {
            number for number, told in self._told.items()
            if any(_USED in one[0] for one in same.finditer(told))
        }  # fmt: skip
        return bool(found) and own not in found

    def _pass(self, at: int) -> int:
        return bisect.bisect_left(self._nodes, at)


def _next(ascending: Sequence[int], behind: int, least: int) -> int:
    at = bisect.bisect_right(ascending, behind)
    return min(ascending[at], least) if at < len(ascending) else least


def _unused_rows(trace: Trace, record: RankRecord, thread: int) -> tuple[list[list[int]], list[int]]:
    """Return the activities that multiply and lead to no gradient, in rows with none between that does, and those
    that do, ascending.
    """
    operators, base = trace.operators, trace.header.base_ns
    rows, numbers = trace.numbered.row, trace.numbered.number
    nodes = np.array([_NODE in name for name in trace.names], bool)[operators.name[rows]]
    casts = np.array([name.startswith(_CAST) for name in trace.names], bool)[operators.name[rows]]
    used, used_but_for_casts = (set(numbers[own].tolist()) for own in (nodes, nodes & ~casts))
    last = _last_nodes(record, np.sort(operators.start[rows[nodes]]) + base)
    # a network's, behind the update as well: a validation pass that somebody looks at
    passes = sorted((begun, over) for begun, over, name in record.phases if FORWARD.fullmatch(name))
    within: dict[int, list[int]] = {}  # by activity: the numbers that it and what is within it tell
    chosen = ~nodes & (operators.thread[rows] == thread)
    for row, number in zip(rows[chosen].tolist(), numbers[chosen].tolist(), strict=True):
        start = int(operators.start[row]) + base
        at = _around(record, start)
        if at is not None and (start < last.get(record.step[at], 0) or _is_within(passes, start)):
            within.setdefault(at, []).append(number)
    for at in record.recomputed:
        within.pop(at, None)
    # of activities that tell one number each, and the same, the last may have recorded it: those before are frozen
    recorded = {within[at][0]: at for at in sorted(within) if min(within[at]) == max(within[at])}
    found: list[list[int]] = [[]]
    leading: list[int] = []
    before = -1
    for at in sorted(within):
        if record.step[at] != before:
            found.append([])
        before = record.step[at]
        least, most = min(within[at]), max(within[at])
        # a single number may be that of what is recorded next, a cast or not
        is_free = (used_but_for_casts if least < most else used).isdisjoint(range(least, most + 1))
        if is_free and (least < most or recorded[least] == at):
            found[-1].append(at)
        else:
            leading.append(at)
            found.append([])
    return found, leading


def _is_within(spans: Sequence[tuple[int, int]], instant: int) -> bool:
    at = bisect.bisect_right(spans, (instant, sys.maxsize)) - 1
    return at >= 0 and instant < spans[at][1]


def _last_nodes(record: RankRecord, begun: "np.ndarray") -> dict[int, int]:
    """Return when the last node of each step's backward passes begins, by the step's number."""
    found = {}
    for number, (begin, end) in zip(record.steps, pairwise(record.edges), strict=False):
        at = int(begun.searchsorted(end)) - 1
        if at >= 0 and begun[at] >= begin:
            found[number] = int(begun[at])
    return found


def _around(record: RankRecord, instant: int) -> int | None:
    """Return the activity of the loop's thread, no node's, that an instant lies in."""
    at = bisect.bisect_right(record.start, instant) - 1
    while at >= 0 and (record.kind[at] != COMPUTE or record.stream[at] != 0):
        at -= 1
    return at if at >= 0 and instant < record.end[at] and _NODE not in record.name[at] else None
