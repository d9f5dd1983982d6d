"""Places of a CPU rank's step at which its loop stands still for longer on one side, in nearly every step.

The mean step hardly tells that beside other processes: they put a rank off for milliseconds, now here and now there.
But they meet one place of hundreds in few steps, and what is in the program itself (a sleep, a call that blocks) is at
its place in all of them. So the host's idle time is taken place by place, between the operators of the loop's
thread, without what collectives or loading data take, and a place stands out where it is longer in nine of ten steps
of one side than in nine of ten of the other. Slower cores make all places longer: more than twice as long they do not.
Between two collectives the loop is idle as well, so a place with more of them on one side is no place of both.

Two or three recorded steps may all meet another process at one place. Of so few only a place counts that the rows of
all steady steps speak for: of the rank that keeps the others waiting, by as much.
"""

from collections import Counter
from itertools import pairwise

import msgspec
import numpy as np

from scalescope.records.errors import UserError
from scalescope.scaling.compare.answer import GapChange, LateChange
from scalescope.scaling.compare.measurement import Measurement, Window, ranks_in_all
from scalescope.scaling.compare.noise import Floats, Mask
from scalescope.scaling.evidence.host_timeline import host_timeline
from scalescope.scaling.evidence.loop_places import LoopParts
from scalescope.scaling.finding.finding import LoopPlace
from scalescope.scaling.rank.cpu import CpuTimeline, build_cpu_timeline
from scalescope.scaling.rank.step_sources.steps import Steps
from scalescope.scaling.trace.backward_calls import BACKWARD_CALL, BEFORE_CALL, LOOP_CALLS, backward_begins
from scalescope.scaling.trace.families import HANDOVER_OPS
from scalescope.scaling.trace.intervals import Intervals, Ints, covered_before, difference, union
from scalescope.scaling.trace.reader import read_trace
from scalescope.scaling.trace.trace import Trace

#: Fewer steps may have something in common by chance; of one alone nothing is told.
_ENOUGH_STEPS, _LEAST_STEPS = 6, 2
#: More windows and ranks say little more of one place.
_MOST_WINDOWS, _MOST_RANKS = 10, 4
#: Of ten steps of a side, nine are this long at least, or at most.
_FEW = 0.1
#: A place's sure part of the step, and how many times as long it is at least.
_LEAST_SHARE, _TIMES = 0.01, 2.0

_Places = tuple[str, ...]


class _Steps(msgspec.Struct, frozen=True):
    """One rank's steps of one side that are alike: the operator behind each place, and (steps, places) ms."""

    places: _Places
    ms: Floats
    collectives: Ints  # that are handed over at each place
    calls: _Places  # what the loop calls within each place; "" for nothing that has a name
    ahead_ms: Floats  # (steps, places), of `ms` that before the call
    longest: tuple[Intervals, ...]  # by step, each place's longest idle stretch, in absolute ns
    windows: tuple[Window, ...]  # by step, whose it is

    def called(self, place: int) -> str | None:
        """Return what comes behind a place, as a loop's writer would say it: the call, where its time lies before that,
        else the operator; None: the step's end.
        """
        before = self.ahead_ms[:, place].sum() >= BEFORE_CALL * self.ms[:, place].sum()
        return (self.calls[place] if before else "") or self.places[place] or None

    def in_loop(self, rank: int, place: int) -> LoopPlace | None:
        """Return where in the loop a place lies, by the steps of the first window that has it; None: nothing tells."""
        window = self.windows[0]
        parts = _parts_of(window, rank)
        if parts is None:
            return None
        own = [one for one, of in zip(self.longest, self.windows, strict=True) if of is window]
        found = [(int(one.starts[place]), int(one.ends[place])) for one in own if one.ends[place] > one.starts[place]]
        starts, ends = np.array(sorted(found), np.int64).reshape(-1, 2).T
        return parts.place_of(Intervals(starts, ends), first=place == 0)


class _Step(msgspec.Struct, frozen=True):
    """One step, as of `_Steps`."""

    places: _Places
    ms: Floats
    collectives: Ints
    calls: _Places
    ahead_ms: Floats
    longest: Intervals


def standing_gaps(
    baseline: Measurement, other: Measurement, step_ms: float, late: LateChange | None = None
) -> list[GapChange]:
    """Return the places at which a rank's loop stands still for longer, or less long, by most first.

    `step_ms`: the mean of both sides; `late`: what all steady steps tell of a rank. Empty where steps are of other
    operators.
    """
    found: list[GapChange] = []
    for rank in ranks_in_all([*baseline.windows, *other.windows])[:_MOST_RANKS]:
        here, there = _steps_of(baseline, rank), _steps_of(other, rank)
        if here is None or there is None or here.places != there.places:
            continue
        own = _standing_out(rank, here, there, _LEAST_SHARE * step_ms)
        few = min(len(here.ms), len(there.ms)) < _ENOUGH_STEPS
        found += [one for one in own if _is_spoken_for(one, late)] if few else own
    return sorted(found, key=lambda one: -abs(one.change_ms))


def _is_spoken_for(gap: GapChange, late: LateChange | None) -> bool:
    """Tell whether a rank is late in all steady steps by as much as it stands still in the few recorded ones."""
    return late is not None and late.rank == gap.rank and late.low_ms <= gap.change_ms <= late.high_ms


def _standing_out(rank: int, here: _Steps, there: _Steps, least_ms: float) -> list[GapChange]:
    (low, high), (low_after, high_after) = (np.quantile(one.ms, (_FEW, 1 - _FEW), axis=0) for one in (here, there))
    before, after = (np.median(one.ms, axis=0) for one in (here, there))
    longer = (low_after - high >= least_ms) & (low_after >= _TIMES * high)
    shorter = (low - high_after >= least_ms) & (low >= _TIMES * high_after)
    out = np.flatnonzero((longer | shorter) & (here.collectives == there.collectives)).tolist()
    sides = [there if after[at] > before[at] else here for at in out]
    return [
        GapChange(
            rank=rank,
            before=side.called(at),
            place=side.in_loop(rank, at),
            change_ms=float(after[at] - before[at]),
            low_ms=float(low_after[at] - high[at]),
            high_ms=float(high_after[at] - low[at]),
            baseline_ms=float(before[at]),
            other_ms=float(after[at]),
        )
        for at, side in zip(out, sides, strict=True)
    ]


def _steps_of(side: Measurement, rank: int) -> _Steps | None:
    """Return the steps that have the operators of most of them; None where they are too few, or cannot be read."""
    steps: list[_Step] = []
    windows: list[Window] = []
    apart = max(1, -(-len(side.windows) // _MOST_WINDOWS))
    for window in side.windows[::apart]:
        source = window.traces.get(rank)
        if source is None:
            return None
        try:
            trace = read_trace(source.path, source.device)
            steps += _of_window(trace, build_cpu_timeline(trace, window.only))
        except UserError:
            return None
        windows += [window] * (len(steps) - len(windows))
    if not steps:
        return None
    usual, _ = Counter(one.places for one in steps).most_common(1)[0]
    alike = [one for one in steps if one.places == usual]
    whose = tuple(window for window, one in zip(windows, steps, strict=True) if one.places == usual)
    if len(alike) < _LEAST_STEPS:
        return None
    calls, _ = Counter(one.calls for one in alike).most_common(1)[0]
    times, ahead, collectives = (
        np.array([getattr(one, own) for one in alike]) for own in ("ms", "ahead_ms", "collectives")
    )
    handed = np.median(collectives, axis=0).astype(np.int64)
    return _Steps(usual, times, handed, calls, ahead, tuple(one.longest for one in alike), whose)


def _parts_of(window: Window, rank: int) -> LoopParts | None:
    """Return the parts of the loop that a rank's trace has; None where it cannot be read, or has no loop."""
    source = window.traces[rank]
    try:
        trace = read_trace(source.path, source.device)
        host = host_timeline(trace, build_cpu_timeline(trace, window.only).steps)
    except UserError:
        return None
    return LoopParts(host) if host is not None else None


def _of_window(trace: Trace, timeline: CpuTimeline) -> list[_Step]:
    """Return each step's places, each named by what is behind it, their idle time, ms, and the collectives in them.

    That is an operator, or the backward pass that it begins; "": the step's end, which has come before whatever a loop
    runs between two of the profiler's steps, as to keep a loss.
    """
    (start, end), edges, names = timeline.operators, timeline.windows.edges, trace.names
    call_starts, call_names = _loop_calls(trace, timeline.thread)
    opens_backward = np.isin(start - trace.header.base_ns, _backward_begins(trace, timeline.thread))
    beside = _between_steps(timeline.steps, start)
    loads = covered_before(timeline.data, end) > covered_before(timeline.data, start)
    handover = np.array([names[name].startswith(HANDOVER_OPS) for name in timeline.operator_name.tolist()], bool)
    kept = np.flatnonzero(~loads & ~handover)
    busy = union(timeline.compute, timeline.communication, timeline.data)
    found = []
    for first, last in pairwise(edges.tolist()):
        own = kept[(start[kept] >= first) & (start[kept] < last)]
        instants = np.concatenate(([first], start[own], [last]))
        idle = np.diff(instants) - np.diff(covered_before(busy, instants))
        called = [
            "" if outside else BACKWARD_CALL if opens else names[name]
            for name, opens, outside in zip(
                timeline.operator_name[own].tolist(), opens_backward[own].tolist(), beside[own].tolist(), strict=True
            )
        ]
        handed = start[handover & (start >= first) & (start < last)]
        collectives = np.bincount(np.searchsorted(start[own], handed), minlength=own.size + 1)
        at = _last_begun(call_starts, instants)
        opened = np.where(at >= 0, call_starts[at], instants[:-1]) if call_starts.size else instants[:-1]
        ahead = opened - instants[:-1] - (covered_before(busy, opened) - covered_before(busy, instants[:-1]))
        calls = tuple(call_names[one] if one >= 0 else "" for one in at.tolist())
        longest = _longest(difference(Intervals(instants[:1], instants[-1:]), busy), instants)
        found.append(_Step((*called, ""), idle / 1e6, collectives, calls, ahead / 1e6, longest))
    return found


def _longest(idle: Intervals, instants: Ints) -> Intervals:
    """Return the longest idle stretch of each place, which instants part: an empty one where there is none."""
    at = np.searchsorted(idle.starts, instants, side="left") - 1
    cuts = instants[(at >= 0) & (instants < idle.ends[at])] if idle.starts.size else instants[:0]
    starts, ends = (np.sort(np.concatenate((one, cuts))) for one in idle)
    place = np.searchsorted(instants, starts, side="right") - 1
    order = np.argsort(ends - starts, kind="stable")  # of one place the last is kept
    first, last = instants[:-1].copy(), instants[:-1].copy()
    first[place[order]], last[place[order]] = starts[order], ends[order]
    return Intervals(first, last)


def _last_begun(call_starts: Ints, instants: Ints) -> Ints:
    """Return the last call that begins within each place, which instants part; -1 for none."""
    at = np.searchsorted(call_starts, instants[1:], side="right") - 1
    begun: Ints = np.where(at >= np.searchsorted(call_starts, instants[:-1]), at, -1)
    return begun


def _loop_calls(trace: Trace, thread: int) -> tuple[Ints, list[str]]:
    """Return when calls of the loop begin that have names, ascending, in ns, and the names."""
    spans = trace.annotations
    rows = [
        at for at in np.flatnonzero(spans.thread == thread).tolist() if LOOP_CALLS.match(trace.names[spans.name[at]])
    ]
    rows.sort(key=lambda at: int(spans.start[at]))
    starts: Ints = spans.start[rows] + trace.header.base_ns if rows else np.zeros(0, np.int64)
    return starts, [trace.names[spans.name[at]] for at in rows]


def _backward_begins(trace: Trace, thread: int) -> Ints:
    """Return when backward passes begin on the loop's thread, in ns of the file's clock."""
    spans = trace.operators
    rows = np.flatnonzero(spans.thread == thread)
    rows = rows[np.argsort(spans.start[rows], kind="stable")]
    return backward_begins(spans.start[rows], spans.end[rows], spans.name[rows], trace.names)


def _between_steps(steps: Steps, starts: Ints) -> Mask:
    """Tell which operators begin behind the end of the profiler's step before them."""
    if steps.source != "profiler" or not len(steps):
        return np.zeros(starts.size, bool)
    step = np.searchsorted(steps.start, starts, side="right") - 1
    return (step >= 0) & (starts >= steps.end[np.maximum(step, 0)])
