"""analysis.json, typed: what the reading half answers. Stable, documented in docs/reference.md, versioned.

Every duration is in the unit its name ends with. A value that the trace cannot support is `None`, with the reason in
`Quality.reasons`; never 0. What its lists hold is in answer_rows.py, what it says of steps in answer_steps.py.
"""

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.files import UNDECODABLE, refuse_huge_integers
from scalescope.records.rows import Origin
from scalescope.records.steps.busy_threads import BusyThread
from scalescope.records.steps.worker_times import ChildTime, WorkerTime
from scalescope.scaling.answer_rows import (
    AsMeasured,
    Basis,
    Collective,
    ExpertRow,
    GroupRow,
    InSitu,
    KernelRow,
    KindRow,
    LastCollective,
    OtherCalls,
    OtherWork,
    PipelineRow,
    PlacesChange,
    RankSplit,
    SamplesOfSteps,
    Split,
    StepSplit,
    SurePart,
    WaterfallPart,
)
from scalescope.scaling.answer_steps import (
    Beside,
    FewerRecorded,
    GrowingSteps,
    LongerSteps,
    MoreWindows,
    OnceSteps,
    RecurringChange,
    RecurringSteps,
    StepTimes,
    Throughput,
)
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.codes import Code, Cure
from scalescope.scaling.finding.finding import Finding, Reason
from scalescope.scaling.step_timeline import StepTimeline

#: 2 adds the step as run, and findings, of which `stragglers` and `advice` are made; files of schema 1 are read all the
#: same.
SCHEMA = 2

#: What told a trace's steps; see scalescope/scaling/rank/steps.py.
StepSource = Literal[
    "profiler", "iteration", "optimizer", "step_annotation", "module", "annotation", "graph", "period",
    "token",
]  # fmt: skip

T = TypeVar("T", bound=msgspec.Struct)

#: What tells files of one folder apart: both hold one rank; another world size, backend or vendor; other work; their
#: windows lie apart in time; they have no step in common; their collectives did not run together, whatever the clocks.
Apart = Literal["rank", "world_size", "backend", "vendor", "work", "times", "steps", "collectives"]


class Mixed(msgspec.Struct, kw_only=True):
    """That a folder holds files of several windows or jobs, each told for itself: which of them this is."""

    kind: Literal["windows", "jobs"]
    number: int  # from 1
    files: list[list[str]]  # the names of each one's, in their order
    apart: Apart  # from the first of them; the first from the second
    apart_s: float | None = None  # what lies between their windows; None where they overlap, or it is not known


class DevicesOfRank(msgspec.Struct, kw_only=True):
    """That one process drives several devices, which are taken as one: an instant in which any computes is compute."""

    rank: int
    busy: list[float]  # of each device, the share of the rank's window in which a kernel runs there
    by_turns: bool  # hardly two of them at once


class SlowedSteps(msgspec.Struct, kw_only=True):
    """Steps of the window that the answer is not of, since something outside of the job slowed every host in them."""

    steps: list[int]  # their numbers
    of: int  # so many the window has
    times: float  # how many times as long a host took for its operators at most as in its quickest step
    slowed_ms: float  # such a step on the hosts, and one that the answer is of
    quiet_ms: float


class HeldSteps(msgspec.Struct, frozen=True):
    """The profiled steps that one rank's trace holds, from one number to another."""

    rank: int
    first: int
    last: int


class SharedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a window that all its ranks hold, which all figures are of, where some ranks hold others, too."""

    first: int
    last: int
    held: list[HeldSteps]


class Quality(msgspec.Struct):
    """How far the traces can be trusted."""

    verdict: Literal["good", "degraded", "unusable"]
    missing_ranks: list[int] = []  # of which there is no trace
    left_out_ranks: list[int] = []  # whose traces are there, and in no mean: cut off, or without what the job ran on
    cut_ranks: list[int] = []  # whose traces are cut off, and in the means all the same: no rank's is whole
    unsteady: bool = False  # its profiled steps are none of those beside them, and no recording is why
    lossy_ranks: list[int] = []  # in the means, though the profiler lost some of what ran or was launched there
    incomplete_ranks: list[int] = []  # in the means, though collectives or events are missing that could recur
    several_devices: list[DevicesOfRank] = []  # of ranks whose process drives more than one
    unknown_collectives: list[str] = []  # kernels taken as compute that end together on ranks where they began apart
    mixed: Mixed | None = None  # the folder holds files of other windows or jobs, too
    slowed: SlowedSteps | None = None  # steps left out; of windows that are told together all their steps
    common_steps: list[SharedSteps] = []  # of each window whose ranks do not hold the same
    clocks_apart_ms: float | None = None  # taken out between hosts, where no clock that is set is so far off
    unlinked_fraction: float | None = None
    reasons: list[str] = []
    unprofiled: bool = False  # no step was recorded, as reasons[0] says why: no traces are missing


class Straggler(msgspec.Struct, kw_only=True):
    """A rank the others lose step time to: the findings that name it, as one. Being last is no guilt.

    Where a finding is of several ranks, `lost_ms` is what the step would be shorter by without it on all of them.
    """

    rank: int
    ranks: list[int] = []  # that have the costliest of them together, this one among them; empty for it alone
    lost_ms: float  # a step, by which it would be shorter without them
    code: Code | None = None  # of the costliest; None in a file of schema 1
    verdict: str = ""  # schema 1: in words what it did


class RankLoss(msgspec.Struct, kw_only=True):
    """By how much one rank's step is longer than in an undisturbed run on as many ranks; the parts add up to it."""

    rank: int
    reference: str  # the undisturbed run's name
    from_step_ms: float  # from the traces' windows
    to_step_ms: float
    growth_ms: float
    parts: list[WaterfallPart]
    compute_inflation_ms: float | None = None  # the same kernels, slower; of all profiled steps, the last one too
    compute_more_work_ms: float | None = None  # kernels the reference does not have
    #: The job's step, as `compare` has its change, with 95% bounds: the same on all ranks. None: not comparable.
    step_change_ms: float | None = None
    step_low_ms: float | None = None
    step_high_ms: float | None = None
    from_measured_ms: float | None = None  # the reference's steps without a profiler; None: it, or the run, has none
    to_measured_ms: float | None = None
    #: The two steps whose difference that change is, and what they are: those of `compare`. None: not compared.
    from_compared_ms: float | None = None
    to_compared_ms: float | None = None
    compared_by: Basis | None = None
    samples: SamplesOfSteps | None = None  # where ranks take other shares of a step's; None: as many on both sides
    places: PlacesChange | None = None  # None: the same ranks have most to do, or nothing tells
    #: On CPUs: of a step there and here, how long a rank was ready to run while others had its core; and that nothing
    #: tells it of one side at least.
    from_run_delay_ms: float | None = None
    to_run_delay_ms: float | None = None
    cores_untold: bool = False
    #: Of a change that was measured for sure, and may be of nothing but waits for cores; else None.
    as_measured: AsMeasured | None = None
    sure_parts: list[SurePart] = []  # that changed beyond noise, largest first: of a step that may not have
    #: Of a step whose change is within noise, what is done more or less often, most time first.
    other_work: list[OtherWork] = []
    other_calls: list[OtherCalls] = []  # … and of which collectives it makes another number
    #: Causes that are sure in the reference and not in the run, as its own analysis orders them; of a step that may be
    #: no longer.
    gone: list[Finding] = []
    come: list[Finding] = []  # … in the run and not in the reference, where the run's first cause is none of them
    #: What steps that are longer every so often cost there (`baseline`) and here (`other`), as `compare` has it; None:
    #: neither has any, or one of both ran too short to have shown them.
    recurring: RecurringChange | None = None
    #: By so much is either side's own median known, ms (95%), whatever runs differ by; None: several, or nothing tells.
    from_own_ms: float | None = None
    to_own_ms: float | None = None
    other_names: tuple[str, str] | None = None  # the reference's and the run's, where its user called the job otherwise
    reference_lacks: list[int] = []  # ranks without a trace there: who waits for whom is not known, nor compared

    @property
    def compared_step_ms(self) -> float:
        """Return the step that shares are of which decide what is told: the mean of both that are compared, as
        `compare` has it, so that it is the same of A against B and of B against A.
        """
        there, here = self.from_compared_ms, self.to_compared_ms
        return (self.from_step_ms + self.to_step_ms) / 2 if there is None or here is None else (there + here) / 2

    @property
    def within_noise(self) -> bool:
        """Tell whether the step's change may be noise, of runs that a comparison has laid side by side."""
        return (
            self.step_low_ms is not None
            and self.step_high_ms is not None
            and self.step_low_ms <= 0 <= self.step_high_ms
        )


class Efficiency(msgspec.Struct, kw_only=True):
    """The POP/TALP hierarchy over the window: parallel is the product of the factors."""

    model: str = "POP/TALP, scalescope 1"
    parallel: float
    load_balance: float
    serialisation: float
    transfer: float
    memory: float
    orchestration: float
    #: Of ranks on CPUs a finding says of that they wait for cores, which counts as compute: `parallel` without that.
    on_cores_at_most: float | None = None
    #: … and without all that they wait in the step, whichever part of it that lies in; None where that is no less.
    on_cores_at_least: float | None = None


class Replay(msgspec.Struct, kw_only=True):
    """The traced step replayed unchanged: how well that reproduces it, and what predictions of changes rest on."""

    traced_ms: float  # the mean step over ranks, without a last one that nothing bounds
    replayed_ms: float
    error: float  # replayed / traced - 1; of ranks on CPUs both from one step's first activity to the next one's
    unexplained_ms: float  # idle a step that no dependency explains, on the worst rank
    faithful: bool  # within 1%: else nothing is predicted
    assumptions: list[str] = []


#: So many times as long as those of another minute one job's steps are at most, on a machine that others use as well.
#: Of 28 jobs on an H200, measured before, amid and after their profiled steps, six lay outside what their traces
#: allow, by 1.5 to 14%.
_AN_OTHER_MINUTE = 1.2


class AsRun(msgspec.Struct, kw_only=True):
    """The step as it runs without recording: the replay whose hosts' times are less what recording costs them.

    Of ranks on CPUs whose job timed its own steady steps it is the median of those, and the replay is `replayed_ms`.
    The partition is the replay's, over the steps that a next one bounds; of many ranks, those that are replayed.
    """

    step_ms: float | None  # None: it cannot be replayed, or not be the traced one, and no untraced step is known
    low_ms: float | None = None
    high_ms: float | None = None
    source: Literal["steps", "given", "metadata", "range", "not_needed"]
    #: `apart`: the replay without recording differs from the traced step by more than recording can explain.
    reason: Literal["not_replayed", "not_reached", "untraced_longer", "apart"] | None = None
    untraced_ms: Interval | None = None  # what is told of the step without a profiler
    untraced_by: Literal["steps", "given", "metadata"] | None = None  # the run's own steps, --step-ms, or the traces
    #: What the job's own steps, or its traces' headers, tell of it, where --step-ms stands in its place and is another.
    own_untraced_ms: Interval | None = None
    #: Why that cannot be this job's: shorter than a step without recording, or longer than the traced one.
    contradicts: Literal["too_short", "too_long"] | None = None
    contradicted_ms: float | None = None  # the traced step that it contradicts
    without_recording_ms: float | None = None  # that step without all that recording can cost, where that is too short
    #: The steps without a profiler that the traces allow, where they contradict the one that is told.
    allows_from_ms: float | None = None
    allows_to_ms: float | None = None
    scale: Interval | None = None  # of the measured terms of recording's cost
    recording_ms: Interval | None = None  # by how much recording lengthens the step
    recording_at_most_ms: float | None = None  # where the step is not replayed: all that recording can cost it
    #: By how much operators take longer in the profiled steps than in the job's own, beside that: it is taken off them.
    slowed_ms: float = 0.0
    #: The profiled steps without recording, where `step_ms` is of the job's own: what they differ by is the machine's.
    replayed_ms: Interval | None = None
    steps: int = 0  # in each rank's window
    step_numbers: list[int] = []  # which of the profiled ones these are; empty in older answers
    ranks: list[Split] = []
    kinds: list[KindRow] = []  # of ranks on CPUs: the compute of these ranks, on the mean one, kind by kind
    efficiency: Efficiency | None = None  # of these ranks; where `source` is a range, of its likeliest step

    @property
    def parts_ms(self) -> Interval | None:
        """The step that the parts of `ranks` add up to, ms; None where none is known."""
        if self.replayed_ms is not None or self.step_ms is None:
            return self.replayed_ms
        low = self.step_ms if self.low_ms is None else self.low_ms
        return Interval(self.step_ms, low, self.step_ms if self.high_ms is None else self.high_ms)

    @property
    def profiled_ms(self) -> Interval | None:
        """The profiled steps, ms, without what recording costs by its terms, at their own pace; None: not known."""
        told, slower = self.parts_ms, self.slowed_ms
        return None if told is None else Interval(told.value + slower, told.low + slower, told.high + slower)

    @property
    def own_steps_contradict(self) -> bool:
        """Whether the job's own untraced steps are none that its traces can be of: it did not run evenly."""
        return self.contradicts is not None and self.untraced_by == "steps"

    @property
    def nearly_allowed(self) -> bool:
        """Whether the step that was given may be this job's though its traces do not allow it: it is not far off.

        A job's steps take another time from one minute to the next, by clocks, neighbours and the host.
        """
        if self.contradicts is None or self.untraced_by != "given" or self.untraced_ms is None:
            return False
        if self.contradicts == "too_long":
            return self.allows_to_ms is not None and self.untraced_ms.low <= _AN_OTHER_MINUTE * self.allows_to_ms
        return self.allows_from_ms is not None and _AN_OTHER_MINUTE * self.untraced_ms.high >= self.allows_from_ms


class Advice(msgspec.Struct, kw_only=True):
    """A finding's remedy, with what it would bring. Gains are ms a step, positive."""

    code: Code | None = None  # of the finding; None in a file of schema 1
    rank: int | None = None
    ranks: list[int] = []  # on all of which it is to be done, for a cause that several have
    cure: Cure | None = None
    overrides: list[str] = []  # of scalescope's own jobs; empty where no setting does it
    what: str = ""  # schema 1: in words
    because: str = ""
    elsewhere: str = ""  # what does it in a script of one's own
    gain_ms: float
    low_ms: float
    high_ms: float
    fraction: float  # of the step
    at_most: bool = False  # the gain is a bound, not an expectation
    at_least: bool = False  # it is what is sure of it, and may be more


class RunAnalysis(msgspec.Struct, kw_only=True):
    """One run's traces, explained."""

    schema: int = SCHEMA
    kind: Literal["run"] = "run"
    name: str
    model: str | None = None
    strategy: str | None = None
    origin: Origin | None = None  # who wrote its loop; None: not known, as of traces without a run folder
    compiled: bool = False  # its run folder says that torch.compile made its step; see `is_compiled`
    world_size: int
    hosts: int | None = None  # that its ranks run on, where its folder or each of its traces names them
    cores_full: bool = False  # the threads that its ranks compute with are as many as their cores, by its folder
    activity: Literal["gpu", "cpu"]
    device: str | None = None
    steps_by: StepSource | None = "profiler"  # what told the steps; None: `steps` is the whole trace
    backend: str | None = None  # by which ranks talk, where the traces say: nccl (RCCL calls itself so, too), gloo, mpi
    framework: Literal["torch", "jax", "onnxruntime", "tensorflow"] = "torch"  # whose profiler wrote the traces
    trains: bool = True  # an optimiser steps, or gradients are computed; else the job infers, or does neither
    quality: Quality
    windows: int = 1  # that all figures are of
    busy_threads: list[BusyThread] = []  # of the ranks' own processes beside their loops, as a script's job saw them
    worker_times: list[WorkerTime] = []  # what these ranks' loaders' workers used of cores, from the same
    child_times: list[ChildTime] = []  # … and what their other child processes did
    more_windows: MoreWindows | None = None  # that would tell more; None of what is no job of ours, or not profiled
    fewer_recorded: FewerRecorded | None = None  # steps than the window was to; None: not so, or not known
    longer: LongerSteps | None = None  # they are of steps that had become longer
    recurring: RecurringSteps | None = None  # steps that are longer every so often, in the window or not
    once: OnceSteps | None = None  # steps of the window that are far longer, as none of the job's own is
    growing: GrowingSteps | None = None  # each step is longer than the one before
    ranks: list[RankSplit] = []
    steps: list[StepSplit] = []
    collectives: list[Collective] = []
    groups: list[GroupRow] = []  # most exposed first
    experts: list[ExpertRow] = []  # groups with uneven all-to-alls, most uneven first
    pipelines: list[PipelineRow] = []
    kernels: list[KernelRow] = []  # the longest, of the mean rank
    kinds: list[KindRow] = []  # all kernels, of the mean rank
    in_situ: list[InSitu] = []  # only where a sweep is at hand, or its absence is worth a word: in a study
    findings: list[Finding] = []  # most costly first; `stragglers` and `advice` are made of them
    stragglers: list[Straggler] = []
    lost: list[RankLoss] = []  # only where a reference was given
    efficiency: Efficiency | None = None
    replay: Replay | None = None  # of a study, its largest run of each job has one
    as_run: AsRun | None = None  # where there is a replay
    advice: list[Advice] = []  # what would bring most, best first
    unpriced: Reason | None = None  # why the replay prices no findings, where it was to
    step_times: StepTimes | None = None
    throughput: Throughput | None = None
    last_collectives: list[LastCollective] = []  # only of a job that failed
    beside: Beside | None = None  # the traces that were named before it in the same call, where there were such
    timeline: StepTimeline | None = None  # of what is replayed; in a file of its own, so null in analysis.json


def read_run_answer(path: Path) -> RunAnalysis:
    """Return a run's analysis.json. Raises UserError where it is missing or of another schema."""
    return read_as(path, RunAnalysis)


def read_as(path: Path, kind: type[T]) -> T:
    """Return an analysis.json as a run's or a study's. Raises UserError where it is missing or is none of those."""
    try:
        content = path.read_bytes()
        refuse_huge_integers(content)
        return msgspec.json.decode(content, type=kind)
    except FileNotFoundError:
        raise UserError(f"{path} is missing; make it with: scalescope analyze {path.parent}") from None
    except UNDECODABLE as error:
        raise UserError(f"{path}: {error}; make it anew with: scalescope analyze {path.parent}") from error
