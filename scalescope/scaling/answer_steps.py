"""What a run's answer says of the job's own steps, profiled or not: their times, which are longer, what they did.

Conventions are those of answer.py.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from scalescope.records.steps.longer_recorded import LongerRecorded
from scalescope.records.steps.recording import WhyFewer
from scalescope.records.steps.unevenness import is_unsteady
from scalescope.scaling.finding.finding import Finding

How = Literal[
    "another_job", "another_size", "another_world_size", "other_ranks", "other_steps", "unnumbered_steps", "same_job",
    "unknown",
]  # fmt: skip


#: The share of the compute in kernels of the same names from which on traces are called one job's. Of one job beside
#: itself, on as many ranks or others, it is 0.91 and more; of GPTs that are set otherwise 0.63 to 0.86, of a GPT beside
#: an MLP, whose products have the same names, 0.43 to 0.67.
_ONE_JOB = 0.8


#: What steps that recur cost less of a step, in the mean, is not worth a word.
_LEAST_OFTEN = 0.01


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """How traces relate to the first ones that were named with them."""

    name: str  # the first ones'; where both are called alike, with the folders above by which they differ
    own_name: str  # this one's, likewise
    world_size: int  # the first ones'
    #: `another_size`: the same kernels, with more or less to do; `other_steps`: it may be another window of one launch,
    #: as `same_job`, which has the same steps, is not; `unnumbered_steps`: which steps they are, no number tells;
    #: `unknown`: one of both tells nothing.
    how: How
    work_ratio: float | None = None  # how many times the first's blocks the same kernels launch, where that is told
    reason: str | None = None  # why it is another job
    alike: float | None = None  # of the compute's time, what is in kernels of the same names

    @property
    def may_be_two_jobs(self) -> bool:
        """Whether kernels alone speak for one job, and not much of them."""
        return self.alike is not None and self.alike < _ONE_JOB


class LongSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steady steps that are far longer than a typical one, now and then: by how much, and what for."""

    count: int
    each_ms: float  # a long one beyond a typical one, in the mean
    ms: float  # the same, in the mean of all steady steps, with its 95% interval
    low_ms: float
    high_ms: float
    mean_step_ms: float
    cause: Literal["loading"] | None = None  # that their hosts were in their loaders for it; None: not known
    rank: int | None = None  # whose host was, or whose own time is longer; None: several, or not known
    at: list[int] = []  # which they are, where they stand apart from all others; of a row the first
    profiled: list[int] = []  # … those of them that a window met
    of: int | None = None  # how many steps they are of, the profiled ones with them; None: the steady ones

    @property
    def is_rare(self) -> bool:
        """Whether they are at so few places that nobody knows how often they come."""
        return bool(self.at) and self.low_ms <= 0


class LateInSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The rank that the others wait for, by all steady steps in which each rank's own time is known."""

    rank: int
    ms: float  # in the mean step, with its 95% interval
    low_ms: float
    high_ms: float
    mean_step_ms: float
    steps: int
    delays_known: bool = False  # what ranks waited for cores is known, and left out
    #: By how much the mean step would be shorter if the rank took as long as the others do in the mean: of that, steps
    #: in which chance makes one of them the last keep what they then wait. With its 95% interval.
    saved_ms: float | None = None
    saved_low_ms: float | None = None
    saved_high_ms: float | None = None
    times_the_samples: float | None = None  # how many times the other ranks' its batch has, where a script said that


class LastInSteps(msgspec.Struct, frozen=True, kw_only=True):
    """By how much the last rank of each steady step is later than the ranks are in the mean, whichever rank it is."""

    ms: float  # in the mean step, without what ranks wait for cores; with its 95% interval
    low_ms: float
    high_ms: float
    mean_step_ms: float
    steps: int


class RankInSteps(msgspec.Struct, frozen=True, kw_only=True):
    """How much later than all others a rank is by itself in steady steps, in the mean; below 0 where it is earlier."""

    rank: int
    later_ms: float  # with its 95% interval
    low_ms: float
    high_ms: float
    steps: int


class CoresTaken(msgspec.Struct, frozen=True, kw_only=True):
    """From which step on ranks wait for cores far longer than before, or far less: others came, or went."""

    step: int
    before_ms: float  # what the rank that waits most does so in a typical step before, and from then on
    after_ms: float


class CoreWaits(msgspec.Struct, frozen=True, kw_only=True):
    """How long ranks were ready to run in steady steps, and waited for a core: of CPUs, where their hosts tell it."""

    ms: float  # of the rank that waits most in each step, in the mean
    low_ms: float  # 95%, of the mean rank: others' waits may hide behind that one's
    high_ms: float
    mean_step_ms: float
    steps: int
    rank: int | None = None  # that waits far longer than the others; None: several do, or it is the whole job
    held_up_ms: float | None = None  # of `rank`: how much sooner the last one would first wait for others without waits
    profiled_ms: list[float] = []  # by rank, in the mean profiled step
    threads: int | None = None  # that the ranks of one host compute with, and the cores that these may run on
    cores: int | None = None
    bound_cores: int | None = (
        None  # of these, that `rank` alone is bound to, where others use them or its threads are more
    )
    own_thread: str | None = None  # the busiest one of Python's own beside that rank's loop, by its name
    own_thread_cores: float | None = None  # that it uses
    since: CoresTaken | None = None  # None: they wait alike in all of the run, or now and then

    @property
    def cores_a_rank(self) -> float:
        """How many cores each rank waits for, in the mean."""
        return self.ms / self.mean_step_ms if self.mean_step_ms else 0.0

    @property
    def has_too_many_threads(self) -> bool:
        """Whether the job's own threads alone take turns on its cores."""
        return self.threads is not None and self.cores is not None and self.threads > self.cores

    @property
    def own_thread_takes_turns(self) -> bool:
        """Whether a thread of the rank's own has a core that the ranks need: with theirs it needs more than there are.

        Where cores are left for it, others have those that are waited for.
        """
        if self.own_thread is None or self.threads is None or self.cores is None:
            return self.own_thread is not None
        return self.threads + (self.own_thread_cores or 0.0) > self.cores


#: Of what steps differ by: waits for cores are why they do, where they are so much of it.
_IS_WHY = 0.5


class LoadingInSteps(msgspec.Struct, frozen=True, kw_only=True):
    """How long hosts are in their loaders in steady steps, ms, in the mean: where all of these tell it of all ranks.

    No step loses more to loading than the rank waits that is longest in its loader there.
    """

    by_rank_ms: list[float]
    longest_ms: float  # of the rank that is longest in its loader in each step, with the end of its 95% interval
    longest_high_ms: float
    shortest_ms: float  # of the rank that is shortest, with the begin of its own
    shortest_low_ms: float
    mean_step_ms: float
    steps: int
    profiled_ms: list[float] = []  # by rank, in the mean profiled step; empty: not told of all


class HostTime(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank's loop did of its median profiled step, ms: of CPUs, where its host tells it."""

    rank: int
    steps: int
    on_cpu_ms: float
    run_delay_ms: float  # ready to run, while others had its core
    off_cpu_ms: float  # neither
    asleep_ms: float  # of that, beyond communication that nothing hides; below 0 where it spins for that
    exposed_ms: float  # that communication, by its trace
    loading_ms: float  # by its trace, in the loader while nothing computes: asleep or not
    idle_ms: float  # by its trace, with nothing that runs, and no batch to wait for


class StepsApart(msgspec.Struct, frozen=True, kw_only=True):
    """What of steps' lengths, profiled ones among them, differs by what their ranks wait for cores."""

    by_core_waits: float  # of their variance, what is gone without those waits: from 0 to 1
    waits_ms: float  # of the rank that waits most in each step, in the mean
    steps: int

    @property
    def is_by_core_waits(self) -> bool:
        """Whether waits for cores are why steps differ."""
        return self.by_core_waits >= _IS_WHY


class MoreWindows(msgspec.Struct, frozen=True, kw_only=True):
    """What tells more of a job of ours than its own windows: so many, over so many steps in all."""

    windows: int
    steps: int


class SteadyStretch(msgspec.Struct, frozen=True, kw_only=True):
    """Steady steps in a row, with no recorded one among them."""

    first: int
    last: int
    ms: float  # their median length
    run_delay_ms: float | None = None  # what the rank that waits most for a core does so in their mean


class UnevenSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steady steps that are far longer in one stretch of the run than in another, so that no length is all steps'."""

    longest: SteadyStretch
    shortest: SteadyStretch


class FewerRecorded(msgspec.Struct, frozen=True, kw_only=True):
    """A window recorded fewer steps than it was to."""

    wanted: int  # that were asked for, or are recorded by default
    why: WhyFewer


class StepTimes(msgspec.Struct, kw_only=True):
    """The step outside the profiler's window beside the step inside: their difference is what profiling costs.

    Unless the machine was unsteady: then no more is known.
    """

    measured_step_ms: float | None  # median over the steady steps of their length (records/rows.py)
    measured_step_p95_ms: float | None
    measured_mean_ms: float | None = None  # the mean of the same steps; None: of an answer written before it was told
    measured_steps: int
    window_step_ms: float | None  # mean over ranks of window / steps
    profiling_overhead_ms: float | None  # median profiled step less median steady step
    profiling_overhead_fraction: float | None
    measured_low_ms: float | None = None  # of the median, its 95% interval
    measured_high_ms: float | None = None
    measured_longest_ms: float | None = None
    placebo_ms: float | None = None  # by so much do medians of as many steady steps in a row differ, 95 of 100
    #: Steps differ as much by themselves, or the profiled ones are shorter, or no cost of recording makes the traced
    #: steps of those beside them (see `AsRun.contradicts`): the machine's doing.
    unsteady: bool = False
    long_steps: LongSteps | None = None  # None: there are none worth a word
    late: LateInSteps | None = None  # whom the others wait for; None: nobody alone, or rows do not tell
    last: LastInSteps | None = None  # what equal loads would bring; None: rows do not tell
    ranks: list[RankInSteps] = []  # those of CPUs whose own times tell most of their steps
    core_waits: CoreWaits | None = None  # None: rows do not tell
    uneven: UnevenSteps | None = None  # None: their median is known within a tenth
    apart: StepsApart | None = None  # of CPUs; None: rows do not tell
    loading: LoadingInSteps | None = None  # None: rows do not tell
    hosts: list[HostTime] = []  # by rank, of the profiled steps; empty: rows do not tell
    #: None: recorded steps are not longer, the steps before and after them differ, or rows do not tell.
    longer_recorded: LongerRecorded | None = None

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

    every: int  # steps from one to the next; 1: the loop is held up before `held` of `of` steps, of no one period
    phase: int  # the step's number, modulo `every`, that begins it
    phases: list[int]  # of all the longer steps: what one rank does late in a step makes the others' next one longer
    rank: int | None  # whose it is, where the others wait for it in this step or the next; None: rows do not tell
    longer_ms: float  # than those around them, in the mean; and its 95% interval, by what they differ by
    longer_low_ms: float | None = None  # None: of an answer that was written before it was told
    longer_high_ms: float | None = None
    usual_ms: float  # median length of the others
    mean_ms: float  # `longer_ms` over `every`, or times `held` over `of`: what it costs a step in the mean
    saving_ms: float = 0.0  # of `longer_ms`, how long the loop saved a checkpoint before such a step
    validating_ms: float = 0.0  # … and how long it measured the held-out loss
    loading_ms: float = (
        0.0  # … and how much longer than in the others the host is in its loader there, of who is longest
    )
    loader_entered: bool = False  # in each of them a loader is entered anew, and in no other step, as an epoch begins
    workers_started: int = 0  # … which starts so many worker processes a rank; 0: none, or nothing tells
    held: int = 0  # where `every` is 1: before so many steps the loop saved or validated, and none is longer itself
    of: int = 0
    doing: Finding | None = None  # what a window shows them to do, which is no cost beside; None: none does

    @property
    def is_worth_a_word(self) -> bool:
        """Whether they cost enough of a step, in the mean."""
        return self.mean_ms >= _LEAST_OFTEN * self.usual_ms

    def has(self, step: int) -> bool:
        """Tell whether a step is longer than the others for it."""
        return self.every > 1 and step % self.every in self.phases

    def begins_in(self, step: int) -> bool:
        """Tell whether it begins in a step."""
        return self.every > 1 and step % self.every == self.phase


#: What a rank does in a step by itself, and not for another: parts of PARTS.
OwnPart = Literal["compute", "idle_data", "idle_launch"]


class RecurringChange(msgspec.Struct, kw_only=True, frozen=True):
    """Steps that are longer every so often on a side, of which the step's change, a median's, says nothing."""

    baseline_every: int | None  # steps from one to the next; None: it has none
    other_every: int | None
    baseline_each_ms: float  # by which one is longer than the steps between
    other_each_ms: float
    baseline_ms: float = 0.0  # what they cost the baseline in the mean step
    change_ms: float  # of the mean step, with its 95% bounds
    low_ms: float
    high_ms: float
    differs: bool  # beyond noise, and worth a word
    doing: Finding | None = (
        None  # what a window shows OTHER's to do, or the baseline's where it has none; None: nothing
    )


class OnceSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Profiled steps in a row that are far longer than the others, as none of the job's own many is: they came once."""

    steps: list[int]
    rank: int | None  # whose they are; None: all ranks'
    part: OwnPart  # what is longer in them
    each_ms: float  # by how much, each
    of: int  # profiled steps that were looked at
    others: int  # the job's own beside those
    waited_ms: float | None = None  # what of that their ranks wait for cores; None: nothing tells

    def longer_ms(self, told: Sequence[int]) -> float:
        """Return by how much the mean of these steps is longer for those among them, ms."""
        return self.each_ms * sum(step in self.steps for step in told) / len(told) if told else 0.0


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
    told_a_rank: int | None = None  # samples of each rank's step, by which these are counted, where a script told that
