"""One step of a run, from its ranks' records: what each device and host did, and what each instant counts for.

The step is the one nearest the median, of all or of those that show what is found. A rank's span is its own device
step, as the partition cuts it, and its parts are cut the way the partition is (rank/partition.py): so they add up to
that step's row, to the nanosecond.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE, COPY
from scalescope.scaling.ranks.clocks import host_offsets
from scalescope.scaling.ranks.matching import match_collectives
from scalescope.scaling.ranks.waits import wait_and_transfer, wait_of
from scalescope.scaling.step_timeline import Calls, LaneSpans, RankTimeline, Shown, StepTimeline, Why
from scalescope.scaling.timelines.merge import bounded
from scalescope.scaling.trace.intervals import Intervals, clip, covers, difference, distinct, intersect, union
from scalescope.scaling.trace.kernel_kinds import kind_of
from scalescope.scaling.trace.kernel_names import short_name

Ready = Mapping[int, Mapping[int, int]]

_LONGEST_NAME = 160  # characters
#: A rank that waits for so much of what the longest wait takes is not who the others wait for.
_WAITS_ITSELF = 0.5


def step_timeline(
    analysis: RunAnalysis,
    records: Mapping[int, RankRecord],
    ready: Ready | None = None,
    shown: Shown | None = None,
) -> StepTimeline | None:
    """Return the step nearest the median, of the ranks that have records; None where they share no step.

    `shown`: where the ranks hold one of these, it is the one nearest the median of these.

    `ready`: by rank and its collective's index, when its data can be there, ns on the rank's clock; None: as the ranks
    with records tell by themselves, which is all there is to know where those are all ranks.
    """
    held = {rank: one for rank, one in sorted(records.items()) if one.steps and len(one.edges) > len(one.steps)}
    numbers = _candidates(analysis, held)
    if not numbers:
        return None
    means = {step: statistics.fmean(_window(one, step)[1] for one in held.values()) for step in numbers}
    middle = statistics.median(means.values())
    chosen = [number for number in numbers if shown is not None and number in shown.steps]
    near = statistics.median(means[number] for number in chosen or numbers)
    step = min(chosen or numbers, key=lambda number: (abs(means[number] - near), number))
    known_as = shown if chosen else None
    offsets = host_offsets(
        {rank: one.host for rank, one in held.items()}, {rank: one.collectives for rank, one in held.items()}
    ).offsets
    known = ready if ready is not None else _ready(held, offsets)
    begins = {rank: _window(one, step)[0] + offsets.get(rank, 0) for rank, one in held.items()}
    names = _Names()
    doing = None if known_as is None else known_as.rank
    whys = _whys(analysis, held, doing)
    ranks = [
        _rank(rank, one, step, begins[rank] - min(begins.values()), known.get(rank, {}), names, whys[rank])
        for rank, one in held.items()
    ]
    _late_in_it(ranks, doing)
    return bounded(
        StepTimeline(
            run=analysis.name,
            activity=analysis.activity,
            step=step,
            step_ms=means[step] / 1e6,
            median_ms=middle / 1e6,
            steps=len(numbers),
            shows="typical" if known_as is None else known_as.shows,
            every=None if known_as is None else known_as.every,
            like_it=len(chosen) or None,
            names=names.names,
            kinds=names.kinds,
            ranks=ranks,
            left_out=max(0, len(analysis.ranks) - len(ranks)),
        )
    )


class _Names:
    """Every name once."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.kinds: list[str] = []
        self._known: dict[tuple[str, str], int] = {}
        self._short: dict[str, int] = {}

    def kernel(self, name: str) -> int:
        """Return the index of a kernel's or operator's name, shortened."""
        if name not in self._short:
            self._short[name] = self.of(short_name(name), kind_of(name))
        return self._short[name]

    def of(self, name: str, kind: str = "") -> int:
        if len(name) > _LONGEST_NAME:
            name = f"{name[: _LONGEST_NAME - 1]}…"
        if (name, kind) not in self._known:
            self._known[name, kind] = len(self.names)
            self.names.append(name)
            self.kinds.append(kind)
        return self._known[name, kind]


def _candidates(analysis: RunAnalysis, records: Mapping[int, RankRecord]) -> list[int]:
    """Return the steps that all ranks hold, ascending: those that a next one bounds, where there are any."""
    if not records:
        return []
    shared = set.intersection(*(set(one.steps) for one in records.values()))
    open_ended = {row.step for row in analysis.steps if row.open_ended}
    return sorted(shared - open_ended or shared)


def _window(record: RankRecord, step: int) -> tuple[int, int]:
    """Return a step's begin, absolute ns, and its length."""
    at = record.steps.index(step)
    return record.edges[at], record.edges[at + 1] - record.edges[at]


def _ready(records: Mapping[int, RankRecord], offsets: Mapping[int, int]) -> dict[int, dict[int, int]]:
    collectives = {rank: one.collectives for rank, one in records.items()}
    found: dict[int, dict[int, int]] = {rank: {} for rank in records}
    for match in match_collectives(collectives, offsets):
        if (wait := wait_of(match, collectives, offsets)) is not None:
            for rank, index in match.members.items():
                found[rank][index] = wait.ready[rank]
    return found


def _whys(analysis: RunAnalysis, records: Mapping[int, RankRecord], doing: int | None) -> dict[int, list[Why]]:
    """Return what each rank stands for: who is late, who is like most, who comes first. `doing`: who makes it long."""
    last = Counter(one.last_rank for one in analysis.collectives if one.last_rank in records)
    stragglers = [one.rank for one in analysis.stragglers if one.rank in records]
    late = [doing] if doing in records and doing is not None else stragglers[:1]
    late = late or [rank for rank, _ in last.most_common(1) if len(records) < len(analysis.ranks) and rank is not None]
    steps = {row.rank: row.compute_ms / max(row.steps, 1) for row in analysis.ranks if row.rank in records}
    others = {rank: ms for rank, ms in steps.items() if rank not in {*late, *stragglers}} or steps
    middle = statistics.median(others.values()) if others else 0.0
    typical = min(others, key=lambda rank: (abs(others[rank] - middle), rank), default=None)
    few = len(records) < len(analysis.ranks)
    found: dict[int, list[Why]] = {rank: [] for rank in records}
    for rank in late:
        found[rank].append("late")
    if typical is not None and len(records) > 2 and (few or late):
        found[typical].append("typical")
    if few:
        found[min(records)].append("first")
    return found


def _late_in_it(ranks: Sequence[RankTimeline], doing: int | None) -> None:
    """Leave out that a rank is late where in this step it waits for others itself, whatever it does in most.

    What makes the step longer may be its doing all the same: at its end, and the others wait for it in their next.
    """
    waits = {one.rank: one.parts_ns[PARTS.index("exposed_wait")] for one in ranks}
    for one in ranks:
        if "late" in one.why and waits[one.rank] > _WAITS_ITSELF * max(waits.values()):
            one.why.remove("late")
            one.why += ["cause"] if one.rank == doing else []


def _rank(
    rank: int, record: RankRecord, step: int, begin: int, ready: Mapping[int, int], names: _Names, why: list[Why]
) -> RankTimeline:
    start, length = _window(record, step)
    segments = _segments(record, ready, start, start + length)
    parts_ns = np.zeros(len(PARTS), np.int64)
    np.add.at(parts_ns, np.array(segments.what, np.int64), np.array(segments.length, np.int64))
    rows = [at for at in range(len(record.start)) if record.start[at] < start + length and record.end[at] > start]
    of_kind = {kind: [at for at in rows if record.kind[at] == kind] for kind in (COMPUTE, COMMUNICATION, COPY)}

    def lane(spans: Sequence[tuple[int, int, int]]) -> LaneSpans:
        return LaneSpans(
            start=[max(one[0] - start, 0) for one in spans],
            length=[min(one[1], start + length) - max(one[0], start) for one in spans],
            what=[one[2] for one in spans],
        )

    def named(chosen: Sequence[int]) -> list[tuple[int, int, int]]:
        return [(record.start[at], record.end[at], names.kernel(record.name[at])) for at in chosen]

    calls = [(at, record.collectives[record.collective[at]]) for at in of_kind[COMMUNICATION]]
    spans = lane([(one.start, one.end, names.of(one.label)) for _, one in calls])
    return RankTimeline(
        rank=rank,
        why=why,
        begin=begin,
        length=length,
        parts_ns=parts_ns.tolist(),
        parts=segments,
        kernels=lane(named(of_kind[COMPUTE])),
        collectives=Calls(
            start=spans.start,
            length=spans.length,
            what=spans.what,
            wait=[_wait(one, ready.get(record.collective[at]), start, start + length) for at, one in calls],
            bytes=[-1 if one.bytes is None else one.bytes for _, one in calls],
        ),
        copies=lane(named(of_kind[COPY])),
        phases=lane(
            [(begun, over, names.of(name)) for begun, over, name in record.phases
             if begun < start + length and over > start]
        ),
    )  # fmt: skip


def _wait(one: RankCollective, ready: int | None, start: int, end: int) -> int:
    """Return how long a collective waits inside a step, ns; -1 where that is not known."""
    if ready is None:
        return -1
    return max(0, min(ready, end) - max(one.start, start))


def _segments(record: RankRecord, ready: Mapping[int, int], start: int, end: int) -> LaneSpans:
    """Cut a step into the parts of its partition, what each instant counts for, neighbours of one part joined."""
    layers = record.layers
    known = {index: at for index, at in ready.items() if index < len(record.collectives)}
    waiting, moving = wait_and_transfer(record.collectives, known)
    exposed = difference(clip(layers.communication, start, end), layers.compute)
    by_part: dict[str, Intervals] = {
        "compute": layers.compute,
        "exposed_transfer": intersect(exposed, union(moving)),
        "exposed_wait": intersect(exposed, union(waiting)),
        "exposed_unsplit": exposed,
        "exposed_memory": layers.copies,
        "idle_data": layers.data,
        "idle_launch": layers.late,
        "idle_queued": layers.queued,
    }
    cut = {part: clip(one, start, end) for part, one in by_part.items()}
    bounds = np.array([start, end], np.int64)
    edges = distinct(np.concatenate([bounds, *(times for one in cut.values() for times in one)]))
    begins = edges[:-1]
    what = np.full(begins.size, -1, np.int64)
    for index in reversed(range(len(PARTS))):
        what[covers(cut[PARTS[index]], begins)] = index
    first = np.flatnonzero(np.concatenate(([True], what[1:] != what[:-1]))) if what.size else np.empty(0, np.int64)
    over = np.concatenate((begins[first][1:], edges[-1:]))
    kept = what[first] >= 0
    return LaneSpans(
        start=(begins[first] - start)[kept].tolist(),
        length=(over - begins[first])[kept].tolist(),
        what=what[first][kept].tolist(),
    )
