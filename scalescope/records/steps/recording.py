"""What recording costs a job's ranks, and the unrecorded steps beside its windows: recording.json of a run folder, and
in the header of each trace.

Torch-free: measuring writes it, reading takes recording's cost out of the step with it.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from scalescope.records.rows import StepRow
from scalescope.records.statistics import student_over_normal
from scalescope.records.steps.busy_threads import BusyThread
from scalescope.records.steps.unevenness import placebo_ms
from scalescope.records.steps.worker_times import ChildTime, WorkerTime

#: So many steady steps on each side of a window tell what a step takes there.
NEAR_STEPS = 20
#: Fewer tell nothing of their spread.
LEAST_STEPS = 3
#: Why a window recorded fewer steps than it was to: a step has many operators, so that a few steps are trace enough;
#: the loop's last step came first; or the traces would have been larger than profiler.max_mib.
WhyFewer = Literal["many_operators", "loop_ended", "no_room"]


class BurstTimes(msgspec.Struct, frozen=True, kw_only=True):
    """What a call takes the host, ns, in a burst of calls in a row: the shortest of its stretches."""

    operator_ns: float  # a view: an operator that runs nothing anywhere
    call_ns: float | None = None  # an event recorded: a call of the runtime, and no operator; None without a device
    frame_ns: float | None = None  # a Python function that does nothing; None where stacks are not recorded


class RecordingBursts(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's bursts, once a job. What recording costs is what they differ by."""

    rank: int
    plain: BurstTimes  # without a profiler, beside those that are recorded
    recorded: BurstTimes  # neither shapes nor stacks
    shapes: BurstTimes | None = None  # with the shapes of operators' inputs
    stacks: BurstTimes | None = None  # with Python's stacks
    #: before this process recorded anything: CUPTI stays attached, and a call of the runtime then costs more for ever
    bare: BurstTimes | None = None

    @property
    def operator_ns(self) -> float:
        """What recording an operator costs, without its shapes."""
        return self.recorded.operator_ns - self.plain.operator_ns

    @property
    def shapes_ns(self) -> float | None:
        """What the shapes of an operator's inputs cost on top."""
        return None if self.shapes is None else max(0.0, self.shapes.operator_ns - self.recorded.operator_ns)

    @property
    def call_ns(self) -> float | None:
        """What recording a call of the runtime costs, against a process in which nothing was ever recorded.

        The host may have got faster or slower since: by the operators, which CUPTI has no part in.
        """
        if self.recorded.call_ns is None or self.bare is None or self.bare.call_ns is None:
            return None
        pace = self.plain.operator_ns / self.bare.operator_ns if self.bare.operator_ns else 1.0
        return max(0.0, self.recorded.call_ns - pace * self.bare.call_ns)

    @property
    def frame_ns(self) -> float | None:
        """What recording a Python frame costs."""
        if self.stacks is None or self.stacks.frame_ns is None or self.plain.frame_ns is None:
            return None
        return max(0.0, self.stacks.frame_ns - self.plain.frame_ns)


class UntracedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steady steps in a row beside a window, each as long as the slowest rank's."""

    median_ms: float
    spread_ms: float  # a stretch as long as the window lies off the median by no more, 95 times of 100
    count: int


class LongerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that had become longer, for which a window was opened while the job ran."""

    since: int  # the first of them
    step_ms: float
    level_ms: float  # of the steps before


class RecordedWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one window that a rank recorded, and how many they were to be."""

    steps: list[int]
    planned: int
    cut: WhyFewer | None = None  # why they are fewer


class WindowFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One window: which steps were recorded, and those before and after it that were not."""

    steps: list[int]
    before: UntracedSteps | None = None
    after: UntracedSteps | None = None
    first: bool = True  # nothing was recorded before it in this process
    longer: LongerFacts | None = None  # why it was opened; None of a window that was planned
    planned: int | None = None  # how many steps it was to record; None: of an older version
    cut: WhyFewer | None = None  # why it recorded fewer


class RecordingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """recording.json: what recording cost this job's hosts, and its windows."""

    bursts: list[RecordingBursts] = []  # a rank each; none where they could not be measured
    windows: list[WindowFacts] = []
    threads: list[BusyThread] = []  # of a script's ranks, beside their loops
    workers: list[WorkerTime] = []  # their loaders' workers, of each rank that has any; none also where nothing tells
    no_workers: bool = False  # every rank looked for workers all along, and had none
    children: list[ChildTime] = []  # their other child processes that compute

    def after(self, earlier: "RecordingFacts | None") -> "RecordingFacts":
        """Return these with the windows of an earlier attempt at the same run, which this one did not record again."""
        if earlier is None:
            return self
        windows = {one.steps[0]: one for one in (*earlier.windows, *self.windows)}
        return RecordingFacts(
            bursts=self.bursts or earlier.bursts,
            windows=[windows[at] for at in sorted(windows)],
            threads=self.threads or earlier.threads,
            workers=self.workers or earlier.workers,
            no_workers=self.no_workers and earlier.no_workers,
            children=self.children or earlier.children,
        )


def window_facts(rows: Sequence[StepRow], steps: Sequence[int]) -> WindowFacts:
    """Return what a job's rows, by step, tell of the window that recorded these steps in a row."""
    earlier = [row for row in rows if row.step < steps[0]]
    later = [row for row in rows if row.step > steps[-1]]
    before = _steady_beside(reversed(earlier))
    before.reverse()
    return WindowFacts(
        steps=list(steps),
        before=untraced_steps(before, len(steps)),
        after=untraced_steps(_steady_beside(later), len(steps)),
        first=not _recorded_before(earlier),
    )


def recorded_facts(rows: Sequence[StepRow], recorded: RecordedWindow) -> WindowFacts:
    """Return the same with what the ranks say of how many steps those were to be."""
    facts = window_facts(rows, recorded.steps)
    return msgspec.structs.replace(facts, planned=recorded.planned, cut=recorded.cut)


def _steady_beside(leaving: Iterable[StepRow]) -> list[float]:
    """Return the steady steps nearest to a window, ms, up to the next one; `leaving`: rows on the way away from it."""
    found: list[float] = []
    for row in leaving:
        if (row.phase == "profile" and found) or len(found) == NEAR_STEPS:
            break  # profiled ones before any steady one are the window's own
        if row.phase == "steady" and row.step_ms:
            found.append(row.length_ms)
    return found


def _recorded_before(earlier: Sequence[StepRow]) -> bool:
    """Whether there was a window before the one whose warm-up these rows may end with."""
    own = len(earlier)
    while own and earlier[own - 1].phase == "profile":
        own -= 1
    return any(row.phase == "profile" for row in earlier[:own])


def untraced_steps(times_ms: Sequence[float], window: int) -> UntracedSteps | None:
    """Return what steps in a row, beside a window of so many, tell; None where they are too few.

    Their spread is how far stretches of them lie off their median, and what they drift by from one half to the other:
    the window is a stretch more. Few stretches hardly know how far the next one lies, which Student's t allows for.
    """
    if len(times_ms) < LEAST_STEPS:
        return None
    half = len(times_ms) // 2
    drift = statistics.median(times_ms[:half]) - statistics.median(times_ms[half:])
    placebo = placebo_ms(times_ms, window, least=LEAST_STEPS) or 0.0
    if (stretches := len(times_ms) // window) > 2:  # of fewer the placebo has it already
        placebo *= student_over_normal(stretches - 1)
    return UntracedSteps(
        median_ms=statistics.median(times_ms), spread_ms=math.hypot(placebo, drift), count=len(times_ms)
    )
