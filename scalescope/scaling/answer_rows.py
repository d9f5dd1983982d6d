"""The rows of a run's answer, typed: what it has a list of, as ranks, steps, collectives, groups and kernels.

Conventions are those of answer.py.
"""

from typing import Literal

import msgspec

from scalescope.scaling.finding.finding import LoopPlace

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

#: What a comparison's step is: of steps without a profiler, as run, or of the profiled ones.
Basis = Literal["untraced", "as_run", "profiled"]


class SamplesOfSteps(msgspec.Struct, kw_only=True, frozen=True):
    """How many samples a step takes on two sides that are compared, rank by rank, where that is not the same."""

    baseline: tuple[int, ...]  # by rank
    other: tuple[int, ...]
    #: What OTHER's times are multiplied by, so that they are of as many samples; None: ranks' shares changed unlike, of
    #: which no factor is fair, and steps are compared as they are.
    rate: float | None

    @property
    def in_all(self) -> tuple[int, int]:
        """Return how many all ranks' steps take together."""
        return sum(self.baseline), sum(self.other)


class AsMeasured(msgspec.Struct, kw_only=True, frozen=True):
    """A step's change as measured, whoever had the ranks' cores, and that of the steps without what ranks waited for
    them, ms: a comparison's own bounds hold both, since nothing tells whether the next run would wait as long.
    """

    low_ms: float  # of the change as measured: it surely took so much longer
    high_ms: float
    free_ms: float  # the change without what was waited
    free_low_ms: float
    free_high_ms: float


class SurePart(msgspec.Struct, kw_only=True, frozen=True):
    """A part of a step that changed beyond noise, as a comparison of two runs has it, ms a step."""

    part: str  # of the partition; or a kernel kind, of compute
    change_ms: float
    low_ms: float  # bounds of all parts hold together in 95 of 100 comparisons
    high_ms: float
    rank: int | None = None  # whose it is alone; None: the mean rank's


class OtherWork(msgspec.Struct, kw_only=True, frozen=True):
    """Kernels, or operators, of a kind of which a step runs more or fewer than a reference's: counted, no noise."""

    part: str  # the kind
    baseline_calls: int
    other_calls: int
    change_ms: float  # a step, of what is done besides, or of the whole kind where that is beyond noise
    low_ms: float
    high_ms: float
    rank: int | None = None  # whose alone; None: each one's
    within_noise: bool = False  # the whole kind's change: then what is done besides is all that is sure of it


class OtherCalls(msgspec.Struct, kw_only=True, frozen=True):
    """Collectives of an operation, of which a rank makes another number a step than a reference: counted, no noise."""

    operation: str
    baseline_calls: int
    other_calls: int


class PlacesChange(msgspec.Struct, kw_only=True, frozen=True):
    """Ranks that changed places: those that have most to do, or are late, are not the same on both sides."""

    baseline: tuple[int, ...]
    other: tuple[int, ...]
    baseline_samples: int | None = None  # of such a rank's step; None: shared out evenly, or not told
    other_samples: int | None = None
    baseline_late_ms: float | None = None  # for which the others wait for it, by all steady steps; None: not as long
    other_late_ms: float | None = None


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


class StoodStill(msgspec.Struct, kw_only=True, frozen=True):
    """For how long nothing is recorded of a rank's host at one place in the loop, in one step."""

    ms: float  # all together
    before: str  # the operator that comes after the longest stretch of it; "": none does
    place: LoopPlace | None = None  # None: not known
    collects: bool = False  # Python collects its garbage there, for most of it


class LongerIn(msgspec.Struct, kw_only=True, frozen=True):
    """The operator that takes most in one step beyond what it takes in its rank's median one."""

    operator: str
    ms: float  # beyond that


class StepSplit(Split, kw_only=True):
    """One rank in one step."""

    step: int
    open_ended: bool = False  # the last step ends at its last linked activity
    kind: str | None = None  # of a server's iteration: prefill, decode or mixed
    host_pace: float | None = None  # how many times as long its operators take on the host as in the median step
    operators: int | None = None  # that its host runs in it, those that others call included
    #: How much it multiplies of what grows with its batch, over its rank's median step, where shapes tell; and so each
    #: operator whose inputs are of another size than there.
    times_load: float | None = None
    times_inputs: dict[str, float] | None = None
    core_wait_ms: float | None = None  # by the job's own row of it: ready to run, while others had its core
    stood: StoodStill | None = None  # where that is a good part of it
    batches: int | None = None  # that its loop asks torch's loaders with workers for, an epoch's end counts; None: none
    longer_in: LongerIn | None = None  # on CPUs, where that is a good part of it

    @property
    def by_itself_ms(self) -> float:
        """How long the rank is busy with what no other rank holds up."""
        return self.window_ms - self.exposed_transfer_ms - self.exposed_wait_ms - self.exposed_unsplit_ms


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
    sparse: bool = False  # it carries a sparse tensor, of which traces tell the dense shape alone: no `bytes`, no busbw

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
    gain_ms: float = (
        0.0  # by which balanced experts would make the step shorter: the wait of the mean rank, all counted
    )
    gain_low_ms: float = 0.0  # 95%, as steps differ
    gain_high_ms: float = 0.0


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


class WaterfallPart(msgspec.Struct, kw_only=True):
    """A share of the growth of the step, in ms a step: of the mean rank, or of one rank."""

    part: str
    ms: float


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
