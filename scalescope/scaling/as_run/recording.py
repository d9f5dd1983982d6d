"""The model of recording's cost: what the profiler takes of the host's time for each thing that it records.

A term an operator or annotation, a term a call of the runtime or driver (CUPTI's callback), a term a Python frame where
stacks are on; what CUPTI itself says that it stopped the host for is known to the ns. The terms' ratios are measured,
by bursts in the job itself where it is one of ours;
their scale differs from host to host and from minute to minute, so it is found from untraced steps (calibrate.py).
Recording runs on the host's cores as everything else does: on a rank whose host takes longer for the same calls, it
takes longer, too.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from statistics import NormalDist

import msgspec
import numpy as np

from scalescope.records.statistics import NORMAL_95
from scalescope.records.steps.recording import RecordingBursts
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.evidence.interruptions import SHORTEST_NS
from scalescope.scaling.rank.recorded import FRAME_EDGES, OPERATOR_EDGES, OVERHEAD_NS, RUNTIME_CALLS, Counts, Recorded
from scalescope.scaling.rank.records.record import LAUNCH, RankRecord
from scalescope.scaling.replay.host_cost import CallCost, Floats, HostCost

#: Of a scale of which only a least one is known: how likely it is to lie below the interval, or above it.
_TAIL = 0.05


class RecordingTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What recording one thing costs the host, ns, and by what factors the whole is plausibly off."""

    operator_ns: float
    shapes_ns: float  # more an operator whose inputs' shapes are recorded
    call_ns: float  # of the runtime or driver
    frame_ns: float  # of Python, where stacks are on
    low: float
    likely: float
    high: float
    source: str

    def scale_from(self, least: float) -> Interval:
        """Return the likely scale and its 90% interval where all that is known is a least one (0: nothing).

        Scales are spread evenly by factors: their logarithms about normally, with 97.5% of them below `high`.
        """
        spread = NormalDist(math.log(self.likely), math.log(self.high / self.likely) / NORMAL_95)
        below = min(spread.cdf(math.log(least)), 1 - _TAIL) if least > 0 else 0.0
        low, value, high = (
            max(least, math.exp(spread.inv_cdf(below + share * (1 - below)))) for share in (_TAIL, 0.5, 1 - _TAIL)
        )
        return Interval(value, low, high)


#: Bursts of 1,000 tiny kernels, views, backward nodes and event records gave 2.4 to 3.1 µs an operator and 0.6 to 0.8 a
#: call minutes apart on one host; 30 host-bound windows on 2 and 4×H200 took 0.25 to 1.1 times as much, three more.
WITH_DEVICE = RecordingTerms(
    operator_ns=2_750.0, shapes_ns=300.0, call_ns=700.0, frame_ns=250.0, low=0.2, likely=1.0, high=2.4,
    source="bursts of tiny kernels on 2×H200, profiler off and on",
)  # fmt: skip
#: Where the device alone is recorded, a call costs more than it does behind an operator that is recorded, too. Of 10
#: such jobs' windows on H200, at the pace of their hosts, recording took 0 to 11 µs for each call, 5.5 in the middle.
OF_DEVICE_ALONE = msgspec.structs.replace(
    WITH_DEVICE, call_ns=5_500.0, source="jobs on H200 whose device alone was recorded, and not"
)
#: Two gloo ranks, profiler off and on: no CUPTI, and nothing but operators.
ON_CPUS = RecordingTerms(
    operator_ns=600.0, shapes_ns=1_000.0, call_ns=0.0, frame_ns=250.0, low=0.5, likely=1.0, high=1.6,
    source="jobs on 2 gloo ranks, profiler off and on",
)  # fmt: skip

#: What a kernel's launch takes, recorded, on hosts on which recording costs what the fixed terms say: ns.
_LAUNCH_NS = 4_900.0
#: A host that is so many times as slow is charged this power of it: on a host that is slow while it is recorded, for
#: whatever it shares its machine with, steps are longer by more than launches are (of one window, by 1.31 times where
#: those took 1.19), and it is not as slow all the time. On 69 host-bound windows launches of 3.9 to 8.5 µs went with
#: scales of 0.4 to 4.0; by this power they lie within 0.5 to 1.9 times what the terms say, 95 of 100.
_POWER = 1.5
#: A faster host than any that was measured is taken for that one; launches that take so much more tell of another
#: driver, not of the host's pace.
_FASTEST, _SLOWEST = 0.8, 2.5
#: So many launches around a call tell the host's pace there.
_AROUND = 21
#: Where the host's pace is known, the whole is off by no more than these factors.
_LOW_AT_PACE, _HIGH_AT_PACE = 0.4, 2.2

#: A host is no more than this many times faster or slower than those that the fixed terms were measured on.
_OFF = 10.0
#: So much of the ranks' launches must be the same for their hosts' paces to be compared.
_ALIKE = 0.5
#: Of so many steps: more tell no more.
_STEPS = 2


def terms_for(records: Mapping[int, RankRecord]) -> RecordingTerms:
    """Return the terms for ranks like these: as the job itself measured them, else as they were measured elsewhere."""
    fixed = ON_CPUS if all(one.activity == "cpu" for one in records.values()) else WITH_DEVICE
    if fixed is WITH_DEVICE and not any(has_operators(one) for one in records.values()):
        return _at_pace(OF_DEVICE_ALONE, records, OF_DEVICE_ALONE.low, OF_DEVICE_ALONE.high)
    bursts = [one.own.bursts for one in records.values() if one.own.bursts is not None]
    terms = _measured(fixed, bursts) if bursts else fixed
    return _no_more_than_frames_take(_at_pace(terms, records, _LOW_AT_PACE, _HIGH_AT_PACE), records)


def _at_pace(terms: RecordingTerms, records: Mapping[int, RankRecord], low: float, high: float) -> RecordingTerms:
    """Return the terms for hosts as fast as these, by what launching a kernel takes them, and by which factors those
    are off; where that is not known, the terms as they are.
    """
    told = [one.recorded.launch_ns for one in records.values() if one.recorded is not None]
    known = [ns for ns in told if ns]
    if not known:
        return terms
    slow = statistics.geometric_mean(known) / _LAUNCH_NS
    if slow > _SLOWEST:
        return terms
    pace = max(slow, _FASTEST) ** _POWER
    return msgspec.structs.replace(
        terms,
        operator_ns=pace * terms.operator_ns,
        shapes_ns=pace * terms.shapes_ns,
        call_ns=pace * terms.call_ns,
        frame_ns=pace * terms.frame_ns,
        low=low,
        high=high,
    )


def _no_more_than_frames_take(terms: RecordingTerms, records: Mapping[int, RankRecord]) -> RecordingTerms:
    """Return the terms with no more for a Python frame than there is time for one where frames are densest.

    What recording a frame takes lies between its edges and the next ones, together with what Python does there: a frame
    a comprehension or a short function makes is recorded in a tenth of what one takes in between longer calls.
    """
    told = [one.recorded.frame_edge_ns for one in records.values() if one.recorded is not None]
    densest = [2 * edge for edge in told if edge is not None]
    if not densest or terms.frame_ns <= min(densest):
        return terms
    return msgspec.structs.replace(terms, frame_ns=min(densest))


def has_operators(record: RankRecord) -> bool:
    """Tell whether a rank's operators were recorded, not its device and calls alone."""
    recorded = record.recorded
    return recorded is None or any(
        bool(counts[:, OPERATOR_EDGES].any())
        for counts in (recorded.before, recorded.during, recorded.inside)
        if counts.size
    )


def _measured(fixed: RecordingTerms, bursts: Sequence[RecordingBursts]) -> RecordingTerms:
    """Return terms by the ranks' own bursts, in the median; what those do not tell, or cannot be, stays as it is fixed.

    How far a job's cost lies from what its terms say is not known any better for it: the range is the same. On devices
    bursts tell what kinds of calls cost beside one another, and the fixed terms how much an operator does: the same
    call over and over costs the host a fraction of what it does in a step (compiled GPT on an H100 and on 2×H200:
    recording took 31 and 17 ms of a step, which would by the bursts alone have been 4.4 and 4.0).
    """
    operator_ns = statistics.median(one.operator_ns for one in bursts)
    if not fixed.operator_ns / _OFF <= operator_ns <= fixed.operator_ns * _OFF:
        return fixed
    known = {
        "shapes_ns": [one.shapes_ns for one in bursts],
        "call_ns": [one.call_ns for one in bursts] if fixed.call_ns else [],
        "frame_ns": [one.frame_ns for one in bursts],
    }
    told = {
        name: statistics.median(values)
        for name, some in known.items()
        if (values := [one for one in some if one is not None and math.isfinite(one)])
    }
    level = fixed.operator_ns / operator_ns if fixed.call_ns else 1.0
    told = {name: value * level for name, value in {"operator_ns": operator_ns, **told}.items()}
    return msgspec.structs.replace(fixed, source="bursts in the job itself", **told)


def recording_cost(
    records: Mapping[int, RankRecord],
    terms: RecordingTerms,
    interrupted: Mapping[int, float] | None = None,
    opening_ns: Mapping[int | None, float] | None = None,
) -> HostCost:
    """Return what recording cost these ranks' hosts, at a scale of 1, by the calls and activities of their graph.

    `interrupted`: by rank, the share of its host's time in which others have its core or its lock. They have it while
    it records, too: interruptions are shorter in the proportion in which the host then has less to do.
    `opening_ns`: by rank (None: each), for how long its host stands still in its first step, where recording begins.
    """
    paces = host_paces(records)
    calls, inside = {}, []
    for rank in sorted(records):
        recorded = records[rank].recorded
        assert recorded is not None
        weights = _weights(recorded, terms) * paces[rank]
        before, during = _cost(recorded.before, weights), _cost(recorded.during, weights)
        around = _paces_around(records[rank])
        slow, quick = float((around * (before + during)).sum()), float((before + during).sum())
        around = around * quick / slow if slow else around  # dealt out otherwise, and no more of it
        calls[rank] = CallCost(
            before=_with_interruptions(
                records[rank], around * before, around * during, (interrupted or {}).get(rank, 0.0)
            ),
            during=around * during,
            before_known=_with_opening(
                records[rank],
                recorded.before[:, OVERHEAD_NS].astype(np.float64),
                max((ns for of, ns in (opening_ns or {}).items() if of in (None, rank)), default=0.0),
            ),
            during_known=recorded.during[:, OVERHEAD_NS].astype(np.float64),
        )
        inside.append(_cost(recorded.inside, weights) if recorded.inside.size else np.zeros(len(records[rank].start)))
    whole = np.concatenate(inside)
    return HostCost(calls, whole if whole.any() else np.empty(0))


def _paces_around(record: RankRecord) -> Floats:
    """Return by call how many times as much recording costs there as where the host is quickest.

    By what the launches around it take. Where Python formats stacks between any two operators, and little of what the
    recorder needs is left in the caches, launches take 1.6 times as long as in the rest of the step, and so does
    what records them. Launches that wait for room in the device's queue say nothing.
    """
    found = np.ones(len(record.calls))
    usual = record.recorded.launch_ns if record.recorded is not None else None
    rows = [at for at, call in enumerate(record.calls) if call.kind == LAUNCH and call.activity >= 0]
    if not usual or len(rows) < _AROUND:
        return found
    took = np.array([record.calls[at].end - record.calls[at].start for at in rows], np.float64)
    middle = np.median(np.lib.stride_tricks.sliding_window_view(took, _AROUND), axis=1)
    times = np.pad(middle, _AROUND // 2, mode="edge") / usual
    times = np.where(times > _SLOWEST, 1.0, np.maximum(times, 1.0)) ** _POWER
    nearest = np.minimum(np.searchsorted(rows, np.arange(len(record.calls))), len(rows) - 1)
    return times[nearest]


def _with_opening(record: RankRecord, known: Floats, ns: float) -> Floats:
    """Return what is known to be recording's on the way to each call, with the stretch in which it begins."""
    calls = record.calls
    if not ns or not calls or len(record.edges) < 2:
        return known
    returned = np.maximum.accumulate([calls[0].start, *(call.end for call in calls[:-1])])
    starts = np.array([call.start for call in calls])
    thought = np.where(starts < record.edges[1], starts - returned, 0)
    at = int(np.argmax(thought))
    if thought[at] >= ns / 2:  # else the host had what it was in recorded by other threads
        known = known.copy()
        known[at] = max(known[at], min(float(ns), float(thought[at])))
    return known


def _with_interruptions(record: RankRecord, before: Floats, during: Floats, share: float) -> Floats:
    """Return what recording costs on the way to each call, with what a host is interrupted for longer meanwhile."""
    if not share:
        return before
    returned = np.maximum.accumulate([record.calls[0].start, *(call.end for call in record.calls[:-1])])
    held_up = np.maximum(np.array([call.start for call in record.calls]) - returned - SHORTEST_NS, 0.0)
    if not held_up.any():
        return before
    longer = share / (1 - share) * (before.sum() + during.sum())
    found: Floats = before + longer * held_up / held_up.sum()
    return found


def _weights(recorded: Recorded, terms: RecordingTerms) -> Floats:
    """Return what each kind of count costs, ns: entries and exits cost half each."""
    weights = np.zeros(max(OPERATOR_EDGES, RUNTIME_CALLS, FRAME_EDGES, OVERHEAD_NS) + 1)
    weights[OPERATOR_EDGES] = (terms.operator_ns + terms.shapes_ns * recorded.shapes) / 2
    weights[RUNTIME_CALLS] = terms.call_ns
    weights[FRAME_EDGES] = terms.frame_ns / 2
    return weights


def _cost(counts: Counts, weights: Floats) -> Floats:
    cost: Floats = counts @ weights
    return cost


def host_paces(records: Mapping[int, RankRecord]) -> dict[int, float]:
    """Return how long each rank's host takes for the same launches, over the mean rank: 1 where that cannot be told.

    By the typical launch: a host that sleeps once, or waits for room in a queue, is no slower for it.
    """
    gaps = {rank: _gaps(record) for rank, record in records.items()}
    shared = set.intersection(*(set(own) for own in gaps.values())) if gaps else set()
    if len(records) < 2 or len(shared) < _ALIKE * max(len(own) for own in gaps.values()):
        return dict.fromkeys(records, 1.0)
    means = {key: sum(own[key] for own in gaps.values()) / len(gaps) for key in shared}
    known = [key for key in shared if means[key] > 0]
    if not known:
        return dict.fromkeys(records, 1.0)
    typical = {rank: statistics.median(own[key] / means[key] for key in known) for rank, own in gaps.items()}
    mean = statistics.fmean(typical.values())
    return {rank: own / mean if mean else 1.0 for rank, own in typical.items()}


def _gaps(record: RankRecord) -> dict[tuple[int, str, int], int]:
    """Return how long after the launch before it each activity is launched, ns, by step, name and ordinal."""
    steps = set(record.steps[:_STEPS])
    found: dict[tuple[int, str, int], int] = {}
    ordinals: dict[tuple[int, str], int] = {}
    before: int | None = None
    for call in record.calls:
        if call.kind != LAUNCH or call.activity < 0:
            continue
        step, name = record.step[call.activity], record.name[call.activity]
        if step in steps and before is not None:
            ordinal = ordinals[step, name] = ordinals.get((step, name), -1) + 1
            found[record.steps.index(step), name, ordinal] = call.start - before
        before = call.start
    return found
