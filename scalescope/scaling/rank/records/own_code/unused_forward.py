"""Which of a host's operators of the forward pass lead to no gradient, though gradients are recorded there.

Autograd counts what it records: each node has a number, and an operator tells the next free one where it begins. So
what an operator that multiplies has recorded are the numbers from its own to those of the operators within, and the
node of the backward pass that takes it up has one of these. Where none does, in any backward pass of the window, no
loss uses the operator's result, or only as a fixed value. A cast does not count beside others: autocast keeps those of
weights, and the node of one leads to gradients through whatever multiplies by that weight next. Where no gradient is
recorded, as of weights that are frozen, nothing is counted: the number is that of what is recorded next. Under
`torch.no_grad()` none is told.
"""

import bisect
from itertools import pairwise

import numpy as np

from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.trace.trace import Trace

#: So many operators in a row that multiply are a branch of a network: a metric has one or two, as a loss has.
_LAYERS = 3
#: What a cast's node is called.
_CAST = "ToCopyBackward"


def unused_forward(trace: Trace, record: RankRecord, thread: int) -> list[int]:
    """Return what of a rank's activities is computed with gradients that no backward pass asks for, ascending."""
    found: list[int] = []
    for row in _unused_rows(trace, record, thread):
        spanned = range(row[0], row[-1] + 1) if len(row) >= _LAYERS else ()
        found += [at for at in spanned if record.kind[at] == COMPUTE and record.stream[at] == 0]
    return found


def _unused_rows(trace: Trace, record: RankRecord, thread: int) -> list[list[int]]:
    """Return the activities that multiply and lead to no gradient, in rows with none between that does."""
    operators, base = trace.operators, trace.header.base_ns
    rows, numbers = trace.numbered.row, trace.numbered.number
    nodes = np.array(["Backward" in name for name in trace.names], bool)[operators.name[rows]]
    casts = np.array([name.startswith(_CAST) for name in trace.names], bool)[operators.name[rows]]
    used, used_but_for_casts = (set(numbers[own].tolist()) for own in (nodes, nodes & ~casts))
    last = _last_nodes(record, np.sort(operators.start[rows[nodes]]) + base)
    within: dict[int, list[int]] = {}  # by activity: the numbers that it and what is within it tell
    chosen = ~nodes & (operators.thread[rows] == thread)
    for row, number in zip(rows[chosen].tolist(), numbers[chosen].tolist(), strict=True):
        start = int(operators.start[row]) + base
        at = _around(record, start)
        if at is not None and start < last.get(record.step[at], 0):
            within.setdefault(at, []).append(number)
    for at in record.recomputed:
        within.pop(at, None)
    # of activities that tell one number each, and the same, the last may have recorded it: those before are frozen
    recorded = {within[at][0]: at for at in sorted(within) if min(within[at]) == max(within[at])}
    found: list[list[int]] = [[]]
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
            found.append([])
    return found


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
    return at if at >= 0 and instant < record.end[at] and "Backward" not in record.name[at] else None
