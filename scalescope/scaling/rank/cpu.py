"""The partition of a rank that trains on a CPU, where collectives run on threads of their own (gloo).

The timeline is the training loop's thread. Compute is what its outermost operators cover (the autograd engine's own
frames are none, and neither is a node that runs the forward pass again before it computes what is its own), without
those that hand a collective over or wait for one, without what compiles, and without what a function of Python's own
does between the operators that it calls; communication is what the `gloo:*` annotations of the run-loop threads cover,
several at once. What is left is data loading, or Python between operators, compiling included:
the host being late, since nothing is ever enqueued ahead.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from scalescope.records.operations import PAIRWISE
from scalescope.scaling.rank.annotations.loading import data_loading
from scalescope.scaling.rank.collective import GroupNames, RankCollective, describe, name_both_ends
from scalescope.scaling.rank.partition import Layers, OneRankShares, Windows, assemble
from scalescope.scaling.rank.recomputed import find_recomputed
from scalescope.scaling.rank.step_sources.cut import whole_by_collectives, whole_by_operators
from scalescope.scaling.rank.step_sources.steps import Steps
from scalescope.scaling.rank.steps import find_steps
from scalescope.scaling.trace.families import COMPILING, ENGINE_FRAMES, HANDOVER_OPS
from scalescope.scaling.trace.intervals import EMPTY, Intervals, Ints, clip, covered_before, difference, union
from scalescope.scaling.trace.trace import CommunicationArgs, HostSpans, Trace

_Mask = npt.NDArray[np.bool_]

_ON_RUN_LOOPS = ("gloo:", "mpi:")
#: Operators with a list of lists on one side, whose shapes the profiler does not write: the other side is one rank's
#: share of it.
_TELL_A_SHARE = frozenset({"c10d::allgather_", "c10d::reduce_scatter_", "c10d::gather_", "c10d::scatter_"})

_TWO = 2
#: A barrier that runs on the caller's own thread.
_MONITORED = "c10d::monitored_barrier_"

#: `autograd.Function`s: torch names a backward pass by the class, and numbers those of its operators (`…Backward0`).
#: What a compiled graph computes is no operator, so its function is all compute.
_PYTHON_BACKWARD = re.compile(r"(?!Compiled)[A-Za-z_]\w*Backward$")
#: Shorter stretches without an operator are what Python takes between two, ns.
STANDING_NS = 20_000
#: A function that computes by what is no operator does so in both passes, in one at least this share of in the other.
_BOTH_PASSES = 0.1

#: A collective's end is written down so much before or after the thread that waits for it goes on at most, or by such
#: a share of it: they share cores, and a lock.
WOKEN_NS, WOKEN_SHARE = 5_000_000, 0.1


@dataclass(frozen=True, slots=True)
class CpuTimeline:
    """One rank's host timeline. Disjoint sets in absolute ns."""

    windows: Windows
    compute: Intervals
    communication: Intervals
    data: Intervals
    collectives: list[RankCollective]
    #: when the loop's thread hands a collective over, waits for one, compiles, or runs Python, in whatever operator
    between: Intervals
    #: outermost operators of the loop's thread with their names, for laying two runs side by side
    operators: Intervals
    operator_name: Ints
    thread: int  # the loop's
    steps: Steps  # absolute ns
    whole: int = -1  # as in rank/timeline.py
    cut_communication: bool = False  # the file ends before what collectives did: `communication` is what waits for them
    recomputed: Intervals = EMPTY  # when the loop's thread runs operators of the forward pass once more

    def computing(self) -> tuple[Intervals, Ints]:
        """Return `operators` and their names without those that load data: none of the step's compute is theirs, nor of
        its calls.
        """
        starts, ends = self.operators
        loading = covered_before(self.data, ends) - covered_before(self.data, starts)
        kept = np.flatnonzero(2 * loading <= ends - starts)
        return Intervals(starts[kept], ends[kept]), self.operator_name[kept]


def build_cpu_timeline(trace: Trace, only: tuple[int, int] | None = None) -> CpuTimeline:
    """Return the host timeline of a trace without device activity; `only`: of the steps from one number to another."""
    base = trace.header.base_ns
    steps = find_steps(trace, only)
    operators = trace.operators
    thread = steps.thread if steps.thread is not None else _busiest_thread(operators)
    data = data_loading(trace, steps.shifted(base))
    frames = np.array([name.startswith(ENGINE_FRAMES) for name in trace.names], bool)
    recomputed = find_recomputed(trace)
    begins = operators.start.copy()
    for row, begin in recomputed.nodes.items():
        begins[row] = begin
    computing = ~frames[operators.name]
    computing[recomputed.around] = False
    on_loop = np.flatnonzero((operators.thread == thread) & computing)
    starts, ends, names = begins[on_loop] + base, operators.end[on_loop] + base, operators.name[on_loop]
    handover = np.array([name.startswith(HANDOVER_OPS) for name in trace.names], bool)
    is_handover = handover[names] if names.size else np.empty(0, bool)
    # operators that the data loader runs prepare batches: that is loading, and counted there
    own = difference(union(Intervals(starts[~is_handover], ends[~is_handover])), data)
    outermost = _outermost(starts, ends)
    collectives = _collectives(trace, steps)
    blocking = np.array([name.startswith("c10d::") for name in trace.names], bool)[names]
    waits = _waits_inside(starts, ends, blocking, is_handover, collectives)
    handovers = union(Intervals(starts[is_handover], ends[is_handover]), waits)
    compiling = np.array([bool(COMPILING.match(name)) for name in trace.names], bool)[names]
    standing = _standing_in_python(trace.names, starts, ends, names.astype(np.int64))
    between = union(union(handovers, standing), union(Intervals(starts[compiling], ends[compiling])))
    compute = difference(own, between)
    communication = union(
        Intervals(
            np.array([one.start for one in collectives], np.int64), np.array([one.end for one in collectives], np.int64)
        )
    )
    whole, cut = _whole(trace, steps, collectives), False
    if whole == 0 and (told := whole_by_operators(trace, steps)):
        # gloo's threads come last in a file: what the loop's thread computed is there all the same
        whole, collectives, cut = told, [], True
        communication = _waits_of_cut_steps(steps.first(whole).shifted(base), union(own, data), starts[is_handover])
    held = steps.first(whole) if whole > 0 else steps
    return CpuTimeline(
        windows=_windows(held, base, starts, ends),
        compute=compute,
        communication=communication,
        data=data,
        collectives=collectives,
        between=between,
        operators=Intervals(starts[outermost], ends[outermost]),
        operator_name=names[outermost].astype(np.int64),
        thread=thread,
        steps=held.shifted(base),
        whole=whole,
        cut_communication=cut,
        recomputed=recomputed.by_thread(trace).get(thread, EMPTY),
    )


def share_out_cpu(timeline: CpuTimeline) -> OneRankShares:
    """Partition a host timeline: compute, communication, data, and the rest as the host being late."""
    return assemble(timeline.windows, host_layers(timeline))


def host_layers(timeline: CpuTimeline) -> Layers:
    """Return what the steps of a host timeline are shared out among."""
    windows = timeline.windows
    whole = Intervals(windows.edges[:1], windows.edges[-1:])
    busy = union(timeline.compute, timeline.communication)
    late = difference(whole, clip(busy, int(windows.edges[0]), int(windows.edges[-1])))
    return Layers(timeline.compute, timeline.communication, EMPTY, timeline.data, late, EMPTY)


def _whole(trace: Trace, steps: Steps, collectives: list[RankCollective]) -> int:
    run = np.array([one.start - trace.header.base_ns for one in collectives], np.int64)
    return whole_by_collectives(trace, steps, run)


def _waits_of_cut_steps(steps: Steps, busy: Intervals, handed: Ints) -> Intervals:
    """Return in each step that hands collectives over the longest stretch after the first in which nothing computes.

    What a file that is cut off does not hold is when they ran; the loop's thread waits for them in one place, mostly.
    """
    found = []
    for begin, end in zip(steps.start.tolist(), np.append(steps.start[1:], steps.end[-1:]).tolist(), strict=True):
        inside = handed[(handed >= begin) & (handed < end)]
        if inside.size:
            idle = difference(Intervals(inside[:1], np.array([end], np.int64)), busy)
            if idle.starts.size:
                longest = int((idle.ends - idle.starts).argmax())
                found.append((int(idle.starts[longest]), int(idle.ends[longest])))
    spans = np.array(found, np.int64).reshape(-1, 2)
    return Intervals(spans[:, 0], spans[:, 1])


def _windows(steps: Steps, base: int, starts: Ints, ends: Ints) -> Windows:
    """Return the steps from each one's begin to the next one's; the last ends with its annotation."""
    if len(steps):
        edges = np.concatenate((steps.start, steps.end[-1:])) + base
        return Windows([int(number) for number in steps.numbers], edges, False)
    if starts.size:
        return Windows([0], np.array([starts.min(), max(ends.max(), starts.min() + 1)], np.int64), True)
    return Windows([], np.empty(0, np.int64), True)


def _busiest_thread(operators: HostSpans) -> int:
    threads, counts = np.unique(operators.thread, return_counts=True)
    return int(threads[counts.argmax()]) if threads.size else 0


def _outermost(starts: Ints, ends: Ints) -> Ints:
    """Return the positions of the spans that lie in no other one, ascending by start."""
    order = np.lexsort((-ends, starts))
    if order.size == 0:
        return order
    reach = np.maximum.accumulate(ends[order])
    outer: Ints = order[np.concatenate(([True], starts[order][1:] >= reach[:-1]))]
    return outer


def _standing_in_python(all_names: Sequence[str], starts: Ints, ends: Ints, names: Ints) -> Intervals:
    """Return when the loop's thread is in an autograd function of the user's own, and in no operator that it calls.

    Such a function is Python: it computes by operators. What it does besides (sleep, log, wait for a lock) is what
    Python between operators is outside of it, too. One that does so forwards and backwards alike computes there by what
    is no operator, as an extension in C does.
    """
    number = {name: at for at, name in enumerate(all_names)}
    passes = {  # by the backward pass's row of names, that of the forward pass
        at: number.get(name.removesuffix("Backward"), -1) for name, at in number.items() if _PYTHON_BACKWARD.match(name)
    }
    chosen = {row: np.isin(names, row) for row in passes.items()}
    if not any(rows.any() for rows in chosen.values()):
        return EMPTY
    operators = ~np.logical_or.reduce(list(chosen.values()))
    computing = [
        rows for row, rows in chosen.items()
        if _are_alike(*(_bare_ns(starts, ends, names == one, operators) for one in row))
    ]  # fmt: skip
    if computing:
        operators |= np.logical_or.reduce(computing)
    left = _bare(starts, ends, ~operators & np.logical_or.reduce(list(chosen.values())), operators)
    long = left.ends - left.starts >= STANDING_NS
    return Intervals(left.starts[long], left.ends[long])


def _bare(starts: Ints, ends: Ints, functions: _Mask, operators: _Mask) -> Intervals:
    """Return when functions run, and no operator does."""
    inside = union(Intervals(starts[functions], ends[functions]))
    return difference(inside, union(Intervals(starts[operators], ends[operators])))


def _bare_ns(starts: Ints, ends: Ints, functions: _Mask, operators: _Mask) -> float:
    left = _bare(starts, ends, functions, operators)
    return float((left.ends - left.starts).sum())


def _are_alike(backward_ns: float, forward_ns: float) -> bool:
    return min(backward_ns, forward_ns) >= _BOTH_PASSES * max(backward_ns, forward_ns) > 0


def _waits_inside(
    starts: Ints, ends: Ints, blocking: Ints, is_handover: Ints, collectives: list[RankCollective]
) -> Intervals:
    """Return when the loop's thread waits, inside an operator, for a collective that it has handed over there.

    An autograd function that calls a blocking collective stands still in it, and no operator says so: from the end of
    what hands it over until the function goes on, which is when the collective ends.
    """
    order = np.lexsort((-ends, starts))
    open_until: list[tuple[int, bool]] = []  # of the operators that an instant lies in: the end, and whether it is one
    found: list[tuple[int, int]] = []
    begun = starts[order]
    begins = np.array([one.start for one in collectives], np.int64)
    rows = (of_each[order].tolist() for of_each in (starts, ends, blocking, is_handover))
    for start, end, blocks, hands_over in zip(*rows, strict=True):
        while open_until and open_until[-1][0] <= start:
            open_until.pop()
        # what hands over for an operator of functional collectives has another that waits
        if blocks and open_until and not any(handover for _, handover in open_until):
            after = int(np.searchsorted(begun, end, side="left"))
            until = min(open_until[-1][0], int(begun[after]) if after < begun.size else open_until[-1][0])
            for one in collectives[int(np.searchsorted(begins, start)) :]:
                if one.start >= until:
                    break
                length = one.end - one.start
                if end < min(until, one.end) and abs(one.end - until) <= max(WOKEN_NS, WOKEN_SHARE * length):
                    found.append((end, min(until, one.end)))
                    break
        open_until.append((end, hands_over))
    spans = np.array(found, np.int64).reshape(-1, 2)
    return union(Intervals(spans[:, 0], spans[:, 1]))


def _collectives(trace: Trace, steps: Steps) -> list[RankCollective]:
    """Return the collectives as the run-loop threads ran them, ascending by start."""
    groups = GroupNames(trace)
    base = trace.header.base_ns
    handed_over = _HandedOver(trace)
    found, shares, ways = [], [], []
    rows = sorted(trace.annotation_communication.items(), key=lambda item: int(trace.annotations.start[item[0]]))
    for span, one in _monitored_barriers(trace, groups):
        monitored = trace.annotations
        rows = [(row, index) for row, index in rows
                if not (monitored.thread[row] == span[2] and span[0] <= monitored.start[row] < span[1])]  # fmt: skip
        _place(one, steps, base, *span)
        found.append(one)
    for row, index in rows:
        name = trace.names[trace.annotations.name[row]]
        if not name.startswith(_ON_RUN_LOOPS):
            continue
        start = int(trace.annotations.start[row])
        annotated = trace.communications[index]
        operator, args = handed_over.take(annotated, start) or ("", annotated)
        one = describe(args, groups)
        _place(one, steps, base, start, int(trace.annotations.end[row]), int(trace.annotations.thread[row]))
        found.append(one)
        if one.operation in PAIRWISE and one.source is one.destination is None:
            ways.append((one, name.endswith("send")))
        if operator in _TELL_A_SHARE:
            shares.append(one)
    found.sort(key=lambda one: one.start)
    groups.complete(found, by_stream=False)
    for one in shares:
        _make_whole(one)
    rank = trace.header.distributed.rank
    for one, goes in ways:
        if len(one.group_ranks) == _TWO and rank in one.group_ranks:
            # without shapes the partner is not told either: of two, it is the other one
            own = one.group_ranks.index(rank)
            one.source, one.destination = (own, 1 - own) if goes else (1 - own, own)
        one.goes = goes
    _tell_passes(trace, [one for one, _ in ways])
    for one in found:
        name_both_ends(one, rank)
    return found


def _tell_passes(trace: Trace, transfers: Sequence[RankCollective]) -> None:
    """Tell of sends and receives whether a backward pass runs right before a send, or right after a receive."""
    frames = np.array([name.startswith(ENGINE_FRAMES) for name in trace.names], bool)
    backward = np.sort(trace.operators.start[frames[trace.operators.name]]) + trace.header.base_ns
    edges = [np.iinfo(np.int64).min, *(one.start for one in transfers), np.iinfo(np.int64).max]
    for at, one in enumerate(transfers, 1):
        since, until = (edges[at - 1], edges[at]) if one.goes else (edges[at], edges[at + 1])
        one.of_backward = bool(np.searchsorted(backward, until) > np.searchsorted(backward, since))


def _place(one: RankCollective, steps: Steps, base: int, start: int, end: int, thread: int) -> None:
    step = int(steps.of(np.array([start], np.int64))[0])
    one.start, one.end, one.stream = start + base, end + base, thread
    one.step = int(steps.numbers[step]) if step >= 0 else None


def _monitored_barriers(trace: Trace, groups: GroupNames) -> list[tuple[tuple[int, int, int], RankCollective]]:
    """Return the barriers that say who is missing, with start, end and thread of each on the file's clock.

    What is annotated in them are the messages that rank 0 asks of each rank in turn, and its answers: they say nothing
    of their partners, and nobody is let go before the last one has come.
    """
    operators, found = trace.operators, []
    for row, index in trace.operator_communication.items():
        if trace.names[operators.name[row]] == _MONITORED:
            span = int(operators.start[row]), int(operators.end[row]), int(operators.thread[row])
            found.append((span, describe(trace.communications[index], groups)))
    return found


def _make_whole(one: RankCollective) -> None:
    """Turn one rank's share into the whole buffer, where the group's size is known; else the size is not known."""
    size = one.group_size
    one.elements = one.elements * size if one.elements is not None and size else None
    one.bytes = one.bytes * size if one.bytes is not None and size else None


class _HandedOver:
    """The operators that hand collectives over, in order; run loops take them up in the same order.

    They say what the annotations do not: gloo calls its reduce_scatter an all_reduce, and gives of an all_gather the
    size of one rank's share.
    """

    def __init__(self, trace: Trace) -> None:
        operators = trace.operators
        rows = [row for row in trace.operator_communication if trace.names[operators.name[row]].startswith("c10d::")]
        rows.sort(key=lambda row: int(operators.start[row]))
        self._waiting = [
            (
                int(operators.start[row]),
                trace.names[operators.name[row]],
                trace.communications[trace.operator_communication[row]],
            )
            for row in rows
        ]

    def take(self, annotated: CommunicationArgs, start: int) -> tuple[str, CommunicationArgs] | None:
        """Return, once, the earliest operator before `start` with a buffer of the size that the annotation tells.

        Of some, such as a barrier and a scatter away from its root, gloo tells no size: there the operation decides.
        """
        for at, (handed, name, args) in enumerate(self._waiting):
            if handed > start:
                return None
            same_size = annotated.in_elements in (args.in_elements, args.out_elements)
            if same_size if annotated.in_elements is not None else annotated.operation == args.operation:
                del self._waiting[at]
                return name, msgspec.structs.replace(args, dtype=args.dtype or annotated.dtype, sparse=annotated.sparse)
        return None
