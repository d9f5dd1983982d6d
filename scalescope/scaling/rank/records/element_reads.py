"""Operators by which Python reads a host's tensors element by element, and those of a device's host between its calls.

A value that Python needs as a number (`float(v)`, `.item()`, `if v:`) is read by an operator; what gets at it takes
others: a loop over a tensor's rows, an index. A tensor that is read at once (`.tolist()`, `.numpy()`) takes none of
them. Of a tensor on a device a read is a call that waits, and told as that.
"""

from collections import Counter

import msgspec
import numpy as np

from scalescope.scaling.trace.intervals import Intervals, Ints, covers
from scalescope.scaling.trace.trace import Trace

#: Operators that make a number of Python's of an element.
READING = frozenset({"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"})
#: Operators that get at an element or a row, and compute nothing.
INDEXING = frozenset(
    {"aten::unbind", "aten::select", "aten::slice", "aten::index", "aten::narrow", "aten::squeeze", "aten::detach"}
)
OF_A_LOOP = READING | INDEXING
#: So many values that are read in a row could be one list of them. Fewer are a loss, a norm, a few metrics, each with a
#: name of its own, as any loop reads them: they take microseconds.
LEAST_READS = 8


class ElementsBefore(msgspec.Struct, frozen=True):
    """What a device's host reads element by element on its way to one of its calls."""

    call: int  # index into the record's calls
    reads: int
    calls: dict[str, int]  # by operator
    share: float  # of the time since the call before, as recorded: these operators, and calling them


def elements_before(
    trace: Trace, starts: Ints, ends: Ints, threads: set[int], loading: Intervals, optimizing: Intervals
) -> list[ElementsBefore]:
    """Return what a device's host reads so before its calls, which begin and end then, absolute ns, ascending by start.

    `threads`: that make the calls; `loading`: when data are loaded, which is told as that; `optimizing`: when torch's
    optimizers step, whose own loops read a step's number for each parameter, and are nobody's to write otherwise.
    """
    operators, base = trace.operators, trace.header.base_ns
    wanted = np.array([name in OF_A_LOOP for name in trace.names], bool)
    if not starts.size or not wanted.any() or not len(operators):
        return []
    rows = np.flatnonzero(wanted[operators.name] & np.isin(operators.thread, list(threads)))
    rows = rows[np.argsort(operators.start[rows], kind="stable")]
    begun, over = operators.start[rows] + base, operators.end[rows] + base
    before = np.searchsorted(starts, begun, side="right")
    returned = np.maximum.accumulate(ends)
    known = (before > 0) & (before < starts.size)
    rows, begun, over, at = rows[known], begun[known], over[known], before[known]
    # what makes a call itself, as a read of a device's tensor does, is that call's
    theirs = covers(loading, begun) | covers(optimizing, begun)
    bare = (over <= starts[at]) & (begun >= returned[at - 1]) & ~theirs
    rows, begun, over, at = rows[bare], begun[bare], over[bare], at[bare]
    if not rows.size:
        return []
    outer = np.concatenate(([True], begun[1:] >= np.maximum.accumulate(over)[:-1]))
    rows, begun, over, at = rows[outer], begun[outer], over[outer], at[outer]
    length = over - begun
    calling = np.minimum(np.maximum(begun - np.concatenate((begun[:1], over[:-1])), 0), length)
    calling[np.concatenate(([True], at[1:] != at[:-1]))] = 0
    found = []
    for call in np.unique(at).tolist():
        own = at == call
        names = Counter(trace.names[name] for name in operators.name[rows[own]].tolist())
        reads = sum(count for name, count in names.items() if name in READING)
        whole = int(starts[call] - returned[call - 1])
        if reads >= LEAST_READS and whole > 0:
            share = min(1.0, int((length[own] + calling[own]).sum()) / whole)
            found.append(ElementsBefore(call, reads, dict(names), share))
    return found
