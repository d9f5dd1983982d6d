"""What one rank's trace says for a replay: its activities, and the host calls that launch, order and await them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.rank.partition import NO_LAYERS, Layers, Windows
from scalescope.scaling.rank.recorded import Recorded
from scalescope.scaling.rank.records.callers import NO_CODE, OwnCode
from scalescope.scaling.rank.records.element_reads import ElementsBefore
from scalescope.scaling.rank.records.long_way import NO_LONG_WAY, LongWay
from scalescope.scaling.rank.step_sources.steps import Steps
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.trace.header import OwnMetadata
from scalescope.scaling.trace.intervals import EMPTY, Intervals, Ints, clip, covered_before
from scalescope.scaling.trace.trace import Trace

#: What a host call does: it launches an activity, makes a stream wait for others, or waits itself.
LAUNCH, WAIT, SYNC = 0, 1, 2

#: More ranks are not replayed: those that come last most often, and as many others as fit, stand for all.
MOST_RANKS = 8

#: Of a trace's steps, the first so many are replayed: more tell little more, and each change costs a run through them.
MOST_STEPS = 8
#: More activities, of all ranks, are not replayed: that takes too long.
MOST_ACTIVITIES = 300_000


@dataclass(slots=True)
class RecordedCall:
    """One host call. Times are absolute ns on the rank's clock."""

    start: int
    end: int
    kind: int  # LAUNCH, WAIT or SYNC
    thread: int
    activity: int = -1  # that it launches
    awaits: int = -1  # the activity whose end (or, with `room`, begin) lets it return; -1: it returns by itself
    room: bool = False  # a launch that waited for room in the device's queue
    in_collective: bool = False  # one of the calls by which a collective is handed over


@dataclass(slots=True)
class GradientReady:
    """One parameter's gradient put into its bucket: launched by the call at this index of the calls."""

    call: int
    elements: int
    element_bytes: int


@dataclass(slots=True)
class RankRecord:
    """One rank's activities ascending by start, and its calls ascending by start. Times are absolute ns."""

    rank: int | None
    host: str
    device: str | None
    activity: str  # "gpu" | "cpu"
    count: int  # of activities in its first MOST_STEPS steps; where that is too many to replay, the lists are empty
    start: list[int]
    end: list[int]
    kind: list[int]  # timeline.COMPUTE, COMMUNICATION or COPY
    stream: list[int]
    step: list[int]  # the ProfilerStep's number, -1 for none
    name: list[str]
    collective: list[int]  # index into `collectives`, -1 for none
    collectives: list[RankCollective]
    calls: list[RecordedCall]
    data: Intervals  # when the host loads data
    edges: list[int]  # of the device's steps
    steps: list[int]  # their numbers
    mean_step_ns: float = 0.0  # of all the window's steps, of which `edges` has the first ones
    gradients: list[GradientReady] = field(default_factory=list)
    recorded: Recorded | None = None  # what recording was charged with on the way
    own: OwnMetadata = field(default_factory=OwnMetadata)  # what the trace says of its window and of recording's cost
    layers: Layers = NO_LAYERS  # what the steps are shared out among
    multiplied: dict[str, tuple[int, int]] = field(default_factory=dict)  # see Trace
    loads: dict[int, int] = field(default_factory=dict)  # elements that are multiplied in a step, by its number
    inputs: list[int] = field(default_factory=list)  # by activity: elements that it multiplies, 0 where not told
    blocks: list[int] = field(default_factory=list)  # by activity: of a kernel's grid, 0 where that is not told
    from_workers: Intervals = EMPTY  # of `data`, when the host waits for batches of worker processes
    cut_communication: bool = False  # see CpuTimeline
    elements: list[ElementsBefore] = field(default_factory=list)  # that a device's host reads one by one
    phases: list[tuple[int, int, str]] = field(default_factory=list)  # what the loop's thread says it does, ascending
    recomputed: list[int] = field(default_factory=list)  # activities of the forward pass, run in the backward pass
    precisions: list[int] = field(default_factory=list)  # by activity, see precisions.py; empty where none is told
    sharded: bool | None = None  # whether its parameters are, as its annotations say; None: they say nothing
    unused: list[int] = field(default_factory=list)  # activities of the forward pass that lead to no gradient
    long_way: LongWay = NO_LONG_WAY  # what its own code computes in many operators where one would do
    code: OwnCode = NO_CODE  # the script's own functions, by time; none without stacks
    called: list[int] = field(default_factory=list)  # by activity: the stack that it is called in; empty without stacks
    new_gradients: list[int] = field(default_factory=list)  # when the host makes them, ascending: see new_gradients.py

    def operator_of(self, at: int) -> str:
        """Return the operator that an activity is, or that launched it where that is known, else its name."""
        return self.long_way.operators.get(at, self.name[at])


def kept(windows: Windows, starts: Ints, whole: int) -> tuple[float, int]:
    """Return the instant from which on nothing is kept, since no effect precedes its cause, and how much begins before.

    Of more than can be replayed nothing is kept, and nothing of a step that is not among the `whole` ones.
    """
    is_all = len(windows) <= MOST_STEPS and whole < 0
    until = math.inf if is_all else int(windows.edges[: MOST_STEPS + 1][-1])
    count = int((starts < until).sum())
    return (until, count) if count <= MOST_ACTIVITIES else (-math.inf, count)


def first_steps(windows: Windows) -> tuple[list[int], list[int]]:
    """Return the edges and the numbers of the steps that are replayed."""
    return windows.edges[: MOST_STEPS + 1].tolist(), windows.numbers[:MOST_STEPS]


def mean_step_ns(windows: Windows) -> float:
    return float(windows.edges[-1] - windows.edges[0]) / len(windows) if len(windows) else 0.0


def loads_of(trace: Trace, steps: Steps) -> dict[int, int]:
    """Return how many elements a step multiplies of what grows with its batch; none where shapes were not recorded."""
    at = steps.of(trace.multiplied_at.start + trace.header.base_ns)
    told = at >= 0
    sums = np.bincount(at[told], trace.multiplied_at.elements[told], minlength=len(steps)) if told.any() else ()
    return {number: round(elements) for number, elements in zip(steps.numbers.tolist(), sums, strict=False)}


def within(layers: Layers, edges: Sequence[int]) -> Layers:
    """Return what lies between the first and the last edge."""
    return Layers(*(clip(layer, edges[0], edges[-1]) for layer in layers))


def call_times(record: RankRecord) -> tuple[Ints, Ints]:
    calls = record.calls
    return np.array([call.start for call in calls], np.int64), np.array([call.end for call in calls], np.int64)


def take_code(record: RankRecord, code: OwnCode, thread: int | None = None) -> None:
    """Keep in which functions of the script activities are called: on this thread, or on that of each call."""
    if not code:
        return
    calls = [call for call in record.calls if call.kind == LAUNCH and call.activity >= 0]
    threads = np.array([call.thread if thread is None else thread for call in calls], np.int64)
    called = np.zeros(len(record.start), np.int64)
    called[[call.activity for call in calls]] = code.at(np.array([call.start for call in calls], np.int64), threads)
    record.code, record.called = code, called.tolist()


def gradient_rows(trace: Trace, record: RankRecord) -> list[int]:
    """Return the operators that put gradients into buckets, in order, as far as the record goes."""
    until = record.calls[-1].end - trace.header.base_ns if record.calls else 0
    began = {row: int(trace.operators.start[row]) for row in trace.gradients}
    return sorted((row for row, start in began.items() if start <= until), key=began.__getitem__)


def data_between(record: RankRecord, start: int, end: int, *, from_workers: bool = False) -> int:
    """Return for how many ns of a stretch the host loads data; `from_workers`: waits for batches of such."""
    loading = record.from_workers if from_workers else record.data
    if loading.starts.size == 0:
        return 0
    left, right = covered_before(loading, np.array([start, end], np.int64)).tolist()
    return int(right - left)


def loaded_before_calls(record: RankRecord) -> list[float]:
    """Return for how many ns a rank's host loads data before each of its calls, since all before it have returned."""
    starts, ends = call_times(record)
    if not record.data.starts.size or not starts.size:
        return [0.0] * starts.size
    returned = np.maximum.accumulate(np.concatenate((starts[:1], ends[:-1])))
    loaded = covered_before(record.data, starts) - covered_before(record.data, np.minimum(returned, starts))
    before_calls: list[float] = loaded.astype(float).tolist()
    return before_calls


def that_load(record: RankRecord) -> list[int]:
    """Return a CPU's activities that lie in the loading of data."""
    starts, ends = np.array(record.start, np.int64), np.array(record.end, np.int64)
    loading = covered_before(record.data, ends) - covered_before(record.data, starts)
    computes = np.array(record.kind, np.int64) == COMPUTE
    return [int(row) for row in np.flatnonzero(computes & (ends > starts) & (2 * loading > ends - starts))]
