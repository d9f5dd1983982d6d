"""analysis.json, typed: what the reading half answers. Stable, documented in docs/reference.md, versioned.

Every duration is in the unit its name ends with. A value that the trace cannot support is `None`, with the reason in
`Quality.reasons`; never 0.
"""

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.files import UNDECODABLE, refuse_huge_integers
from scalescope.records.steps.unevenness import is_unsteady
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding import Code, Cure, Finding, Reason
from scalescope.scaling.step_timeline import StepTimeline

#: 2 adds the step as run, and findings, of which `stragglers` and `advice` are made; files of schema 1 are read all the
#: same.
SCHEMA = 2

#: What told a trace's steps; see scalescope/scaling/rank/steps.py.
StepSource = Literal[
    "profiler", "iteration", "optimizer", "step_annotation", "module", "annotation", "graph", "period"
]  # fmt: skip

T = TypeVar("T", bound=msgspec.Struct)

#: The parts of a rank's window, in the order in which they are shown. They add up to the window exactly.
PARTS = (
    "compute",
    "exposed_transfer",
    "exposed_wait",
    "exposed_unsplit",
    "exposed_memory",
    "idle_data",
    "idle_launch",
    "idle_queued",
)


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


class Quality(msgspec.Struct):
    """How far the traces can be trusted."""

    verdict: Literal["good", "degraded", "unusable"]
    missing_ranks: list[int] = []  # of which there is no trace
    left_out_ranks: list[int] = []  # whose traces are there, and in no mean: cut off, or without what the job ran on
    cut_ranks: list[int] = []  # whose traces are cut off, and in the means all the same: no rank's is whole
    unsteady: bool = False  # its profiled steps are none of those beside them, and no recording is why
    lossy_ranks: list[int] = []  # in the means, though the profiler lost some of what ran or was launched there
    several_devices: list[DevicesOfRank] = []  # of ranks whose process drives more than one
    unknown_collectives: list[str] = []  # kernels taken as compute that end together on ranks where they began apart
    mixed: Mixed | None = None  # the folder holds files of other windows or jobs, too
    clocks_apart_ms: float | None = None  # taken out between hosts, where no clock that is set is so far off
    unlinked_fraction: float | None = None
    reasons: list[str] = []
    unprofiled: bool = False  # the job ran with the profiler off: there are no traces, and none are missing


class Split(msgspec.Struct, kw_only=True):
    """The partition of a stretch of one rank's time: compute + exposed_* + idle_* = window."""

    rank: int
    window_ms: float
    compute_ms: float
    exposed_transfer_ms: float
    exposed_wait_ms: float
    exposed_unsplit_ms: float
    exposed_memory_ms: float
    idle_data_ms: float
    idle_launch_ms: float
    idle_queued_ms: float

    def part_ms(self, part: str) -> float:
        """Return one of PARTS by its name, in ms."""
        value: float = getattr(self, f"{part}_ms")
        return value


class RankSplit(Split, kw_only=True):
    """One rank over its whole window (all profiled steps)."""

    steps: int
    communication_ms: float  # union of the collectives, hidden or not
    overlap_fraction: float | None  # of the communication, the share under compute; None without communication
    before_window_ms: float  # activity launched before the window opened


class StepSplit(Split, kw_only=True):
    """One rank in one step."""

    step: int
    open_ended: bool = False  # the last step ends at its last linked activity
    kind: str | None = None  # of a server's iteration: prefill, decode or mixed


class Collective(msgspec.Struct, kw_only=True):
    """One collective, matched across the ranks whose traces hold it."""

    index: int
    operation: str
    bytes: int | None
    dtype: str | None
    group: str
    group_size: int | None  # None where the trace does not say
    step: int | None
    transfer_us: float | None  # the last arriver's duration
    wait_us: dict[int, float] = {}  # by rank: time before the data could be there
    last_rank: int | None = None
    bus_gb_s: float | None = None
    in_situ_efficiency: float | None = None  # the sweep's time for it, over transfer_us
    on_copy_engines: bool = False  # no kernel: who came last and who waited is not in the trace
    over_windows: bool = False  # by NCCL's kernels for symmetric windows

    @property
    def ran_on(self) -> "RanOn":
        """By what the data were moved, which another CTA policy changes."""
        return "copy_engines" if self.on_copy_engines else "symmetric_kernels" if self.over_windows else "kernels"


class GroupRow(msgspec.Struct, kw_only=True):
    """The collectives of one process group, on the mean rank in a step."""

    group: str
    role: str | None  # dp, tp, pp, cp or ep, where its description says it, or the user
    group_size: int | None
    inside_host: bool | None  # None where the traces do not tell its ranks' hosts
    calls: float
    bytes: float  # of the larger of each call's buffers
    communication_ms: float
    exposed_transfer_ms: float
    exposed_wait_ms: float
    exposed_unsplit_ms: float

    @property
    def exposed_ms(self) -> float:
        """All that is exposed of it."""
        return self.exposed_transfer_ms + self.exposed_wait_ms + self.exposed_unsplit_ms


class ExpertRow(msgspec.Struct, kw_only=True):
    """A process group whose all-to-alls are uneven: which rank's experts have most tokens, and what that costs."""

    group: str
    rank: int  # the fullest
    imbalance: float  # its load over the mean rank's
    share: float  # of all that the group's ranks have
    bytes_by_rank: dict[int, float]  # a step
    calls: float  # a step
    wait_ms: float  # exposed, in these collectives, of the mean other rank in a step


class PipelineRow(msgspec.Struct, kw_only=True):
    """A pipeline: how long its stages stand idle, beside what the schedule itself costs where stages are even."""

    group: str
    stages: list[int]  # ranks, in the pipeline's order
    micro_batches: int | None  # None where partners are not told, or an interleaved schedule does not tell them
    stages_per_rank: int = 1  # above 1: an interleaved schedule, which says so
    bubble_ms: float  # of the mean stage in a step
    bubble: float  # of the step
    schedule_bubble: float | None  # (p - 1) / (v * m + p - 1), v stages a rank
    slow_rank: int | None  # whose stage computes longer than the others'
    compute_ms: dict[int, float]  # by rank, a step
    steps: int


#: By what a collective moves its data: NCCL's kernels, those that it has for symmetric windows, or copy engines.
RanOn = Literal["kernels", "symmetric_kernels", "copy_engines"]


class InSitu(msgspec.Struct, kw_only=True):
    """One kind of collective in training beside a sweep's time for it (verdicts/insitu.py): medians over its calls.

    ideal + size + contention + rest = transfer; skew comes before it.
    """

    operation: str
    bytes: int
    dtype: str | None
    group_size: int | None  # None where the trace does not say
    calls: int
    ran_on: RanOn = "kernels"  # here, and in the sweep's rows beside it
    transfer_us: float | None = None
    alone_us: float | None = None
    efficiency: float | None = None  # alone over transfer
    under_compute: float | None = None  # of the transfer, the share with compute beside it
    ideal_us: float | None = None
    size_us: float | None = None
    contention_us: float | None = None
    rest_us: float | None = None
    skew_us: float | None = None
    reason: str | None = None  # why there is no efficiency


class KernelRow(msgspec.Struct, kw_only=True):
    """A kernel (on a CPU, an operator), or a kind of collective, on the mean rank, a step."""

    name: str  # shortened; the same short name is one row
    kind: str = ""  # see scalescope/scaling/trace/kernel_kinds.py
    communication: bool
    calls: float
    ms: float  # compute: its own share of the compute time; communication: all of its duration, waiting included
    share_of_compute: float | None  # None for communication, which may run under compute


class KindRow(msgspec.Struct, kw_only=True):
    """All kernels of one kind (trace/kernel_kinds.py), or all communication, on the mean rank, a step."""

    kind: str
    calls: float
    ms: float  # compute: the kernels' own shares, which add up to the compute; communication: the union, hidden or not
    share_of_compute: float | None  # None for communication
    beside_communication_ms: float | None  # of `ms`, how long collectives ran meanwhile; None for communication


class Straggler(msgspec.Struct, kw_only=True):
    """A rank the others lose step time to: the findings that name it, as one. Being last is no guilt."""

    rank: int
    lost_ms: float  # a step, by which it would be shorter without them
    code: Code | None = None  # of the costliest; None in a file of schema 1
    verdict: str = ""  # schema 1: in words what it did


class WaterfallPart(msgspec.Struct, kw_only=True):
    """A share of the growth of the step, in ms a step: of the mean rank, or of one rank."""

    part: str
    ms: float


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


class Efficiency(msgspec.Struct, kw_only=True):
    """The POP/TALP hierarchy over the window: parallel is the product of the factors."""

    model: str = "POP/TALP, scalescope 1"
    parallel: float
    load_balance: float
    serialisation: float
    transfer: float
    memory: float
    orchestration: float


class LongSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steady steps that are far longer than a typical one, now and then: by how much, and what for."""

    count: int
    each_ms: float  # a long one beyond a typical one, in the mean
    ms: float  # the same, in the mean of all steady steps, with its 95% interval
    low_ms: float
    high_ms: float
    mean_step_ms: float
    cause: Literal["loading"] | None = None  # that their hosts were in their loaders for it; None: not known
    rank: int | None = None  # whose host was; None: several, or not known


class LateInSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The rank that the others wait for, by all steady steps in which each rank's own time is known."""

    rank: int
    ms: float  # in the mean step, with its 95% interval
    low_ms: float
    high_ms: float
    mean_step_ms: float
    steps: int
    delays_known: bool = False  # what ranks waited for cores is known, and left out


class StepTimes(msgspec.Struct, kw_only=True):
    """The step outside the profiler's window beside the step inside: their difference is what profiling costs.

    Unless the machine was unsteady: then no more is known.
    """

    measured_step_ms: float | None  # median over the steady steps of their length (records/rows.py)
    measured_step_p95_ms: float | None
    measured_steps: int
    window_step_ms: float | None  # mean over ranks of window / steps
    profiling_overhead_ms: float | None  # median profiled step less median steady step
    profiling_overhead_fraction: float | None
    placebo_ms: float | None = None  # by so much do medians of as many steady steps in a row differ, 95 of 100
    #: Steps differ as much by themselves, or the profiled ones are shorter, or no cost of recording makes the traced
    #: steps of those beside them (see `AsRun.contradicts`): the machine's doing.
    unsteady: bool = False
    long_steps: LongSteps | None = None  # None: there are none worth a word
    late: LateInSteps | None = None  # whom the others wait for; None: nobody alone, or rows do not tell

    def __post_init__(self) -> None:
        """Tell it of answers that were written before it was a field of theirs, too."""
        if self.profiling_overhead_ms is not None and self.measured_step_ms is not None:
            self.unsteady |= is_unsteady(self.profiling_overhead_ms, self.measured_step_ms, self.placebo_ms)

    @property
    def overall(self) -> float:
        """What all steady steps did a second over what the median one does: less than 1 where a few are long."""
        if self.long_steps is None or self.measured_step_ms is None or self.long_steps.mean_step_ms <= 0:
            return 1.0
        return self.measured_step_ms / self.long_steps.mean_step_ms

    @property
    def between_long(self) -> float:
        """What steps that are not long did a second over what the median one does."""
        if self.long_steps is None or self.measured_step_ms is None:
            return 1.0
        typical = self.long_steps.mean_step_ms - self.long_steps.ms
        return self.measured_step_ms / typical if typical > 0 else 1.0

    @property
    def profiled_step_ms(self) -> float | None:
        """The median profiled step, by the same clock as the steady ones: their median and the overhead."""
        if self.measured_step_ms is None or self.profiling_overhead_ms is None:
            return self.window_step_ms
        return self.measured_step_ms + self.profiling_overhead_ms


class LongerSteps(msgspec.Struct, kw_only=True):
    """Steps that became longer while the job ran, and are what its answer is of; the windows before are beside it."""

    since: int  # the first of them
    step_ms: float
    level_ms: float  # of the steps before
    usual_windows: int = 0  # at that level, none of which is in any other figure
    usual_step_ms: float | None = None  # as run, there
    usual: list[Finding] = []  # theirs


class RecurringSteps(msgspec.Struct, kw_only=True):
    """Steps that are longer every so often, as a job's own rows tell: a validation, a checkpoint, a log."""

    every: int  # steps from one to the next
    phase: int  # the step's number, modulo `every`, that begins it
    phases: list[int]  # of all the longer steps: what one rank does late in a step makes the others' next one longer
    rank: int | None  # whose it is, where the others wait for it in the step after; None: the rows do not tell
    longer_ms: float  # than the others
    usual_ms: float  # median length of the others
    mean_ms: float  # `longer_ms` over `every`: what it costs a step in the mean


class GrowingSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of which each is a little longer than the one before, all the time: by how much, and what grows."""

    first: int  # the steps from which to which they are known to: the middle ones of the first and the last stretch
    last: int
    from_ms: float  # what a step takes there, by the medians near it
    to_ms: float
    a_step_ms: float  # Theil and Sen's slope, with its 95% interval
    low_ms: float
    high_ms: float
    known_by: Literal["rows", "traces"]  # the job's own timing of its steps, or the profiled ones
    part: str | None = None  # of PARTS: which grows; None: not known
    rank: int | None = None  # whose; None: several, or not known
    name: str | None = None  # the activity that is launched more often in each step than in the one before
    more_calls: float | None = None  # by so much, on the mean rank


class Throughput(msgspec.Struct, kw_only=True):
    """What the job did, from the steady steps of steps.jsonl (medians)."""

    samples_per_s: float
    tokens_per_s: float | None = None
    mfu: float | None = None
    mfu_of_measured: float | None = None
    memory_peak_bytes: int | None = None
    first_loss: float | None = None
    last_loss: float | None = None
    first_validation_loss: float | None = None
    last_validation_loss: float | None = None
    hfu: float | None = None
    hfu_of_measured: float | None = None
    joules_per_sample: float | None = None
    counts_batches: bool = False  # a sample is a rank's whole batch, whose samples nobody told


class Replay(msgspec.Struct, kw_only=True):
    """The traced step replayed unchanged: how well that reproduces it, and what predictions of changes rest on."""

    traced_ms: float  # the mean step over ranks, without a last one that nothing bounds
    replayed_ms: float
    error: float  # replayed / traced - 1
    unexplained_ms: float  # idle a step that no dependency explains, on the worst rank
    faithful: bool  # within 1%: else nothing is predicted
    assumptions: list[str] = []


class AsRun(msgspec.Struct, kw_only=True):
    """The step as it runs without recording: the replay whose hosts' times are less what recording costs them.

    Its partition is over the steps that a next one bounds; of many ranks, those that are replayed.
    """

    step_ms: float | None  # None: it cannot be replayed, or not be the traced one, and no untraced step is known
    low_ms: float | None = None
    high_ms: float | None = None
    source: Literal["steps", "given", "metadata", "range", "not_needed"]
    #: `apart`: the replay without recording differs from the traced step by more than recording can explain.
    reason: Literal["not_replayed", "not_reached", "untraced_longer", "apart"] | None = None
    untraced_ms: Interval | None = None  # what is told of the step without a profiler
    untraced_by: Literal["steps", "given", "metadata"] | None = None  # the run's own steps, --step-ms, or the traces
    #: Why that cannot be this job's: shorter than a step without recording, or longer than the traced one.
    contradicts: Literal["too_short", "too_long"] | None = None
    contradicted_ms: float | None = None  # the traced step that it contradicts
    without_recording_ms: float | None = None  # that step without all that recording can cost, where that is too short
    scale: Interval | None = None  # of the measured terms of recording's cost
    recording_ms: Interval | None = None  # by how much recording lengthens the step
    recording_at_most_ms: float | None = None  # where the step is not replayed: all that recording can cost it
    steps: int = 0  # in each rank's window
    ranks: list[Split] = []
    efficiency: Efficiency | None = None  # of these ranks; where `source` is a range, of its likeliest step

    @property
    def own_steps_contradict(self) -> bool:
        """Whether the job's own untraced steps are none that its traces can be of: it did not run evenly."""
        return self.contradicts is not None and self.untraced_by == "steps"


class Advice(msgspec.Struct, kw_only=True):
    """A finding's remedy, with what it would bring. Gains are ms a step, positive."""

    code: Code | None = None  # of the finding; None in a file of schema 1
    rank: int | None = None
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


class LastCollective(msgspec.Struct, kw_only=True):
    """What a rank called last in a group, in a job that failed, by torch's flight record."""

    rank: int
    group: str
    number: int  # in its group, counted by torch from 1
    operation: str
    elements: int
    dtype: str | None
    ended: bool
    called_from: str | None  # file:line (function), the innermost outside of torch


class RunAnalysis(msgspec.Struct, kw_only=True):
    """One run's traces, explained."""

    schema: int = SCHEMA
    kind: Literal["run"] = "run"
    name: str
    model: str | None = None
    strategy: str | None = None
    world_size: int
    activity: Literal["gpu", "cpu"]
    device: str | None = None
    steps_by: StepSource | None = "profiler"  # what told the steps; None: `steps` is the whole trace
    backend: str | None = None  # by which ranks talk, where the traces say: nccl (RCCL calls itself so, too), gloo, mpi
    framework: Literal["torch", "jax", "onnxruntime", "tensorflow"] = "torch"  # whose profiler wrote the traces
    trains: bool = True  # an optimiser steps, or gradients are computed; else the job infers, or does neither
    quality: Quality
    windows: int = 1  # that all figures are of
    longer: LongerSteps | None = None  # they are of steps that had become longer
    recurring: RecurringSteps | None = None  # steps that are longer every so often, in the window or not
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
