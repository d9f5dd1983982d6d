"""What a device runs because its rank's own code does it the long way: by the operators that its host calls.

The outermost operators of the loop's thread and of autograd's, which runs the backward pass, are what a CPU's record
has as activities. So the rules for those hold here as well; and what they find is what such operators launch.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from scalescope.records.dtypes import PRECISIONS
from scalescope.scaling.rank.annotations.phases import find_phases
from scalescope.scaling.rank.records.long_way import LongWay
from scalescope.scaling.rank.records.own_code.by_hand import loops_by_hand
from scalescope.scaling.rank.records.own_code.normalising import normalising
from scalescope.scaling.rank.records.own_code.optimizers import single_operations
from scalescope.scaling.rank.records.own_code.unused_forward import unused_forward
from scalescope.scaling.rank.records.record import LAUNCH, RankRecord
from scalescope.scaling.rank.step_sources.steps import Steps
from scalescope.scaling.rank.timeline import COMMUNICATION, COMPUTE
from scalescope.scaling.trace.families import ENGINE_FRAMES, HANDOVER_OPS
from scalescope.scaling.trace.intervals import Intervals, Ints, union
from scalescope.scaling.trace.kernel_names import converts, converts_to_double, is_in_double
from scalescope.scaling.trace.trace import Trace

#: What optimizers run for lists of parameters, a kernel for many: what a fused one gives back of that is little beside.
_FOR_LISTS = "aten::_foreach_"
#: The place of float64 among what operators compute in, see `Precisions`.
_PLACE_OF_DOUBLE = PRECISIONS.index("float64") + 1


def add_long_way(trace: Trace, steps: Steps, record: RankRecord) -> None:
    """Note in a device's record what its rank's own code has it do the long way, and for no gradient.

    `steps`: on the host, absolute ns.
    """
    launches = _Launches.of(record)
    double, converting = _in_double(trace, record, launches)
    found = _by_operators(trace, steps, record, launches)
    record.long_way = LongWay(found.single, found.updates, found.chains, found.operators, double, converting)


class _Launches:
    """The calls that launch: when, on which thread, and what."""

    def __init__(self, start: Ints, thread: Ints, activity: Ints) -> None:
        self.start, self.thread, self.activity = start, thread, activity

    @classmethod
    def of(cls, record: RankRecord) -> "_Launches":
        own = [call for call in record.calls if call.kind == LAUNCH and record.kind[call.activity] != COMMUNICATION]
        columns = ([call.start for call in own], [call.thread for call in own], [call.activity for call in own])
        return cls(*(np.array(column, np.int64) for column in columns))

    def rows(self, thread: int, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
        """Return which of a thread's spans, ascending and apart, launch an activity, and that activity."""
        own = np.flatnonzero(self.thread == thread)
        at = np.searchsorted(starts, self.start[own], side="right") - 1
        inside = (at >= 0) & (self.start[own] < ends[np.maximum(at, 0)]) if starts.size else np.zeros(own.size, bool)
        return at[inside], self.activity[own[inside]]


def _in_double(trace: Trace, record: RankRecord, launches: _Launches) -> tuple[list[int], list[int]]:
    """Return the activities that compute in float64, and those that convert to it or from it, both ascending.

    Kernels' names tell what they compute on, and what is converted to; of what is converted from the operators' types
    do, where shapes were recorded.
    """
    names = set(record.name)
    double = {name for name in names if is_in_double(name)}
    if not double:
        return [], []
    to_double = {name for name in double if converts_to_double(name)}
    from_double = {name for name in names - double if converts(name)}
    of_double: set[int] = set()
    told = trace.precisions.row[trace.precisions.place == _PLACE_OF_DOUBLE]
    for thread in np.unique(trace.operators.thread[told]).tolist() if from_double else ():
        rows, base = told[trace.operators.thread[told] == thread], trace.header.base_ns
        spans = union(Intervals(trace.operators.start[rows] + base, trace.operators.end[rows] + base))
        of_double.update(launches.rows(thread, spans.starts, spans.ends)[1].tolist())
    computing, converting = [], []
    for at, name in enumerate(record.name):
        if name in to_double or (name in from_double and at in of_double):
            converting.append(at)
        elif name in double and record.kind[at] == COMPUTE:
            computing.append(at)
    return computing, converting


def _by_operators(trace: Trace, steps: Steps, record: RankRecord, launches: _Launches) -> LongWay:
    """Return what the rules for operators find; note what leads to no gradient in the record."""
    rows, host = _host_record(trace, steps, record)
    if host is None:
        return LongWay()
    loop = _loop_thread(trace, steps)
    single = {
        name: own
        for name, own in single_operations(host).items()
        if not any(host.name[at].startswith(_FOR_LISTS) for at in own)
    }
    updates, chains = loops_by_hand(host), normalising(host)
    unused = unused_forward(trace, host, loop) if trace.numbered.row.size else []
    if not (single or updates or chains or unused):
        return LongWay()
    launched = _launched(trace, rows, launches)
    record.unused = _of(launched, unused)
    found = LongWay(
        {name: _of(launched, own) for name, own in single.items()},
        [one._replace(activities=tuple(_of(launched, one.activities))) for one in updates],
        [],
    )
    for chain in chains:
        own = _of(launched, chain.activities)
        found.chains.append(chain._replace(activities=tuple(own), operators=len(own) if chain.operators else 0))
    marked = [*single.values(), *(one.activities for one in updates), *(one.activities for one in chains)]
    for at in {at for own in marked for at in own}:
        found.operators.update(dict.fromkeys(launched.get(at, ()), host.name[at]))
    return found


def _of(launched: dict[int, list[int]], rows: Iterable[int]) -> list[int]:
    return sorted(activity for at in rows for activity in launched.get(at, ()))


def _loop_thread(trace: Trace, steps: Steps) -> int:
    if steps.thread is not None:
        return steps.thread
    threads, counts = np.unique(trace.operators.thread, return_counts=True)
    return int(threads[counts.argmax()])


def _host_record(trace: Trace, steps: Steps, record: RankRecord) -> tuple[Ints, RankRecord | None]:
    """Return the operators' rows, and a record in which they are what a CPU computes; none where there are none.

    A step of the host is as long as its annotation; the record's are when the device comes to it.
    """
    replayed = np.flatnonzero(np.isin(steps.numbers, np.array(record.steps, np.int64)))
    rows = _outermost(trace, steps)
    if not replayed.size or not rows.size:
        return rows, None
    starts, ends = (times[rows] + trace.header.base_ns for times in (trace.operators.start, trace.operators.end))
    index = steps.of(starts)
    kept = (index >= replayed[0]) & (index <= replayed[-1])
    rows, starts, ends, index = rows[kept], starts[kept], ends[kept], index[kept]
    if not rows.size:
        return rows, None
    last = int(replayed[-1])
    until = int(steps.start[last + 1]) if last + 1 < len(steps) else int(steps.end[last])
    edges = [*steps.start[replayed].tolist(), until]
    host = RankRecord(
        rank=record.rank,
        host=record.host,
        device=None,
        activity="cpu",
        count=rows.size,
        start=starts.tolist(),
        end=ends.tolist(),
        kind=[COMPUTE] * rows.size,
        stream=[0] * rows.size,
        step=steps.numbers[index].tolist(),
        name=[trace.names[name] for name in trace.operators.name[rows].tolist()],
        collective=[-1] * rows.size,
        collectives=[],
        calls=[call for call in record.calls if call.in_collective],
        data=record.data,
        edges=edges,
        steps=steps.numbers[replayed].tolist(),
        phases=find_phases(trace, steps, edges),
    )
    return rows, host


def _outermost(trace: Trace, steps: Steps) -> Ints:
    """Return the operators of the loop's thread and of autograd's that stand in no other, ascending by start.

    The engine's frames are none, and what hands collectives over may stand around anything.
    """
    spans = trace.operators
    if not len(spans) or not len(steps):
        return np.empty(0, np.int64)
    frames, handing = (
        np.array([name.startswith(words) for name in trace.names], bool)[spans.name]
        for words in (ENGINE_FRAMES, HANDOVER_OPS)
    )
    found: list[Ints] = []
    for thread in sorted({_loop_thread(trace, steps), *np.unique(spans.thread[frames]).tolist()}):
        own = np.flatnonzero((spans.thread == thread) & ~frames & ~handing)
        own = own[np.lexsort((-spans.end[own], spans.start[own]))]
        over = np.maximum.accumulate(spans.end[own]) if own.size else own
        outer: npt.NDArray[np.bool_] = np.ones(own.size, bool)
        outer[1:] = spans.start[own[1:]] >= over[:-1]
        found.append(own[outer])
    rows = np.concatenate(found)
    return rows[np.argsort(spans.start[rows], kind="stable")]


def _launched(trace: Trace, rows: Ints, launches: _Launches) -> dict[int, list[int]]:
    """Return what each of the rows, by its place among them, launches."""
    spans, base = trace.operators, trace.header.base_ns
    found: dict[int, list[int]] = defaultdict(list)
    for thread in np.unique(spans.thread[rows]).tolist():
        places = np.flatnonzero(spans.thread[rows] == thread)
        own = rows[places]
        at, activities = launches.rows(thread, spans.start[own] + base, spans.end[own] + base)
        for place, activity in zip(places[at].tolist(), activities.tolist(), strict=True):
            found[place].append(activity)
    return found
