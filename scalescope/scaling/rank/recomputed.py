"""Which operators of the forward pass run once more in the backward pass: activation checkpointing.

Where activations are not kept, a node of the backward pass runs the forward pass of its block again before it computes
what is its own: in the hook that unpacks a saved tensor, inside whichever node asks for one first
(`use_reentrant=False`), or in a function of Python's own, which then runs the block's backward pass within itself
(`CheckpointFunctionBackward`). Other nodes call operators as well: a function of the user's own, a second
differentiation, a hook that gathers weights. None of these calls a row of operators by the names, and in the order,
that the forward pass has them in, with a product, a convolution or the like among them.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scalescope.scaling.rank.timeline import COMMUNICATION
from scalescope.scaling.trace.families import ENGINE_FRAMES, HANDOVER_OPS
from scalescope.scaling.trace.intervals import Intervals, Ints, union
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING, kind_of
from scalescope.scaling.trace.trace import Trace

#: What stands before the name of a node in the frame around it.
_FRAME = "autograd::engine::evaluate_function: "
#: What moves nothing and computes nothing, or moves what hooks gather as well: no row of a forward pass is made of it.
_NO_COMPUTE = re.compile(
    r"aten::(empty\w*|new_empty\w*|zeros\w*|ones\w*|fill_|zero_|set_|view\w*|reshape|_reshape_alias|narrow|slice|select"
    r"|as_strided|t|transpose|permute|expand\w*|squeeze_?|unsqueeze_?|flatten|unflatten|chunk|split\w*|unbind|alias"
    r"|detach_?|to|_to_copy|copy_|clone|contiguous|lift_fresh|result_type|resize_|record_stream|item|is_nonzero"
    r"|_local_scalar_dense)|(?!aten::).*(fsdp|c10d|all_?gather|all_?reduce|reduce_?scatter|broadcast|collective).*",
    re.IGNORECASE,
)
#: What a forward pass calls by name, which nodes hardly do.
_LAYERS = re.compile(
    r"aten::(linear|addmm|baddbmm|bmm|mm|matmul|einsum|conv\w*d(\.input)?|convolution|scaled_dot_product_attention"
    r"|\w*_norm|lstm|gru)"
)
#: So many operators in a row that compute, of so many names, are no chance: a layer, its activation and the next layer.
_ROW, _NAMES = 3, 2

_Mask = npt.NDArray[np.bool_]


class Recomputed(NamedTuple):
    """What of a trace's operators are of the forward pass, and run in the backward pass. Times in ns of the file."""

    operators: Ints  # rows of the trace's, which may have others within
    around: Ints  # rows of the functions that run a backward pass within themselves, and of their forward passes
    nodes: dict[int, int]  # by row of the other nodes that have such operators within: when what is their own begins

    def by_thread(self, trace: Trace) -> dict[int, Intervals]:
        """Return when each thread runs such operators, absolute ns."""
        spans, base = trace.operators, trace.header.base_ns
        found = {}
        for thread in np.unique(spans.thread[self.operators]).tolist():
            rows = self.operators[spans.thread[self.operators] == thread]
            found[thread] = union(Intervals(spans.start[rows] + base, spans.end[rows] + base))
        return found


_NOTHING = Recomputed(np.empty(0, np.int64), np.empty(0, np.int64), {})


class _Tree(NamedTuple):
    """What each operator stands in, by row: -1 for none."""

    rows: list[int]  # ascending by thread and start, outer ones before inner ones
    parent: dict[int, int]


def find_recomputed(trace: Trace) -> Recomputed:
    """Return what of a trace's operators the backward pass runs that the forward pass has run already."""
    spans, names = trace.operators, trace.names
    frame_of = np.array([name.startswith(ENGINE_FRAMES) for name in names], bool)[spans.name]
    layers = np.array([bool(_LAYERS.fullmatch(name)) for name in names], bool)[spans.name]
    if not _any_within(trace, layers, frame_of):
        return _NOTHING
    tree = _tree(trace)
    nodes = {row for row, parent in tree.parent.items() if parent >= 0 and frame_of[parent]
             and names[spans.name[parent]] == _FRAME + names[spans.name[row]]}  # fmt: skip
    around = _around_passes(trace, tree, frame_of, nodes)
    children: dict[int, list[int]] = {row: [] for row in nodes}
    forward: list[int] = []
    for row in tree.rows:
        if frame_of[row] or row in around:
            continue
        parent = tree.parent[row]
        if parent in children:
            children[parent].append(row)
        elif parent < 0 or (parent in around and parent not in nodes):
            forward.append(row)
    rows_of = _Rows(trace, forward)
    operators: list[int] = []
    begins: dict[int, int] = {}
    for node, own in children.items():
        if len(own) < _ROW or not (again := rows_of.in_both(own)):
            continue
        operators += again
        if node not in around:
            behind = [row for row in own if spans.start[row] >= spans.end[again[-1]]]
            begins[node] = int(spans.start[behind[0]]) if behind else int(spans.end[again[-1]])
    if not operators:
        return _NOTHING
    return Recomputed(np.array(sorted(operators), np.int64), np.array(sorted(around), np.int64), begins)


def inside_of(spans: Intervals, starts: Sequence[int], kinds: Sequence[int]) -> list[int]:
    """Return the places of what begins within spans, collectives aside, which ranks have to make together."""
    begun = np.array(starts, np.int64)
    if not spans.starts.size or not begun.size:
        return []
    at = np.searchsorted(spans.starts, begun, side="right") - 1
    inside = (at >= 0) & (begun < spans.ends[np.maximum(at, 0)]) & (np.array(kinds, np.int64) != COMMUNICATION)
    places: list[int] = np.flatnonzero(inside).tolist()
    return places


def _any_within(trace: Trace, chosen: _Mask, frames: _Mask) -> bool:
    """Tell whether any of the operators lies in a frame of its thread: else there is nothing to look for."""
    spans = trace.operators
    for thread in np.unique(spans.thread[frames]).tolist():
        own = spans.thread == thread
        inside = union(Intervals(spans.start[own & frames], spans.end[own & frames]))
        starts = spans.start[own & chosen]
        at = np.searchsorted(inside.starts, starts, side="right") - 1
        if bool(((at >= 0) & (starts < inside.ends[np.maximum(at, 0)])).any()):
            return True
    return False


def _tree(trace: Trace) -> _Tree:
    """Return what stands in what, but for what hands collectives over, which may stand around anything."""
    spans = trace.operators
    handing = np.array([name.startswith(HANDOVER_OPS) for name in trace.names], bool)[spans.name]
    rows = np.flatnonzero(~handing)
    rows = rows[np.lexsort((-spans.end[rows], spans.start[rows], spans.thread[rows]))]
    parent: dict[int, int] = {}
    inner: list[tuple[int, int]] = []  # of what the instant lies in: row and end
    thread = -1
    columns = (rows, spans.thread[rows], spans.start[rows], spans.end[rows])
    for row, own, start, end in zip(*(column.tolist() for column in columns), strict=True):
        if own != thread:
            thread, inner = own, []
        while inner and inner[-1][1] <= start:
            inner.pop()
        parent[row] = inner[-1][0] if inner else -1
        inner.append((row, end))
    return _Tree(rows.tolist(), parent)


def _around_passes(trace: Trace, tree: _Tree, frames: _Mask, nodes: set[int]) -> set[int]:
    """Return the nodes that run a backward pass within themselves, and what their forward passes stand in."""
    names, of_row = trace.names, trace.operators.name
    found = {parent for row, parent in tree.parent.items() if frames[row] and parent in nodes}
    forward = {names[of_row[row]].removesuffix("Backward") for row in found}
    return found | {row for row in tree.rows if names[of_row[row]] in forward} if found else found


class _Rows:
    """The forward passes' operators that compute, in order, to look rows of others up in."""

    def __init__(self, trace: Trace, forward: Sequence[int]) -> None:
        self._names, self._of_row = trace.names, trace.operators.name
        self._computes = [not _NO_COMPUTE.fullmatch(name) for name in trace.names]
        self._multiplies = [kind_of(name) in MULTIPLYING for name in trace.names]
        self._forward = [name for name in self._of_row[list(forward)].tolist() if self._computes[name]]
        self._at: dict[tuple[int, ...], list[int]] = {}
        for at in range(len(self._forward) - _ROW + 1):
            self._at.setdefault(tuple(self._forward[at : at + _ROW]), []).append(at)
        self._found: dict[tuple[int, ...], list[tuple[int, int]]] = {}

    def in_both(self, own: Sequence[int]) -> list[int]:
        """Return what of a node's operators, ascending, is in rows that the forward passes have as well."""
        computing = [row for row in own if self._computes[self._of_row[row]]]
        names = tuple(self._of_row[computing].tolist()) if computing else ()
        if names not in self._found:
            self._found[names] = list(self._stretches(names))
        found: list[int] = []
        for first, last in self._found[names]:
            begin, end = own.index(computing[first]), own.index(computing[last])
            found += own[begin : end + 1]
        return found

    def _stretches(self, names: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        """Yield the first and last place of each row of names that is in the forward passes, too, the longest ones."""
        at = 0
        while at <= len(names) - _ROW:
            length = max(
                (self._alike(names, at, place) for place in self._at.get(names[at : at + _ROW], ())), default=0
            )
            row = names[at : at + length]
            if len(set(row)) >= _NAMES and any(self._multiplies[name] for name in row):
                yield at, at + length - 1
                at += length
            else:
                at += 1

    def _alike(self, names: tuple[int, ...], at: int, place: int) -> int:
        length = _ROW
        most = min(len(names) - at, len(self._forward) - place)
        while length < most and names[at + length] == self._forward[place + length]:
            length += 1
        return length
