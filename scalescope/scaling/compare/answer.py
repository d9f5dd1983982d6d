"""comparison.json, typed: what `scalescope compare --json` answers. Documented in docs/reference.md, versioned.

Every figure is OTHER's less the baseline's: a positive change of a step means that OTHER is slower.
"""

from typing import Literal

import msgspec

from scalescope.scaling.answer_rows import AsMeasured, Basis, PlacesChange, SamplesOfSteps
from scalescope.scaling.answer_steps import RecurringChange
from scalescope.scaling.finding.finding import Finding, LoopPlace
from scalescope.scaling.trace.kernel_kinds import KINDS
from scalescope.scaling.verdicts.reference import CONFIRMS, known_ms_of

SCHEMA = 1

Kind = Literal["run", "sweep"]
Verdict = Literal["slower", "faster", "same", "not_comparable"]
#: Why two measurements are not compared, or not step by step.
Reason = Literal[
    "another_kind",  # a run beside a sweep
    "another_job",  # another model, or kernels that have too little in common
    "another_activity",  # CPU ranks beside GPUs
    "another_world_size",
    "another_batch",
    "another_split",  # ranks share samples out otherwise: by no rate, and steps are compared as they are
    "nothing_in_common",  # two sweeps, or two studies, without one point or series that both have
    "not_measured",  # neither steps nor traces
]
#: Over what the bootstrap resamples.
Unit = Literal["repeats", "windows", "steps"]
#: What of a step is counted or known by its program, and so no noise.
Amount = Literal["samples", "flops_a_sample", "collectives", "sent_bytes"]
MatchedBy = Literal["name", "operator", "place", "kind", "only_baseline", "only_other"]
#: A part that changes by so much of it on the other ranks, too, changes on all.
_ALIKE = 0.5
#: From here on what the traces do not show tells of the job more than of its window.
_MOSTLY_OWN = 0.5
#: What the traces do not show of the change of the steps without a profiler.
REST = "rest"
#: What takes as long as the machine is fast: a slow window makes all of these longer, and no rank's waiting for data.
_AT_ITS_PACE = (*KINDS, "exposed_transfer", "exposed_unsplit", "exposed_memory")
Side = Literal["baseline", "other"]
Bound = Literal["memory", "compute", "communication", "unknown"]


class Noise(msgspec.Struct, kw_only=True, frozen=True):
    """What the intervals rest on."""

    unit: Unit
    baseline: int  # units of the baseline
    other: int
    degrees: int | None  # of freedom of the Student's t that stretches few units' spread; None: the spread is assumed
    parts_factor: float  # by which a part's interval is wider than one part's alone would be
    #: Of a step, how long a rank was ready to run while others had its core; None: not told, or a device decides.
    baseline_run_delay_ms: float | None = None
    other_run_delay_ms: float | None = None
    #: On CPUs, the cores that the ranks' child processes (a loader's workers) used; None: not told, or there are none.
    baseline_worker_cores: float | None = None
    other_worker_cores: float | None = None
    by_workers: bool = False  # these use most of what ranks wait longer for cores on one side


class CountedWork(msgspec.Struct, kw_only=True, frozen=True):
    """How many kernels of a kind a step launches: counted, the same in every recorded step, and so no noise."""

    baseline_calls: int
    other_calls: int
    change_ms: float | None = (
        None  # of kernels that one side alone launches; None: none, others in turn, or smaller ones
    )
    low_ms: float | None = None  # bounds, by what the kind's kernels vary by: their time has a sign
    high_ms: float | None = None
    rank: int | None = None  # whose step it is of, where no other rank's launches another number
    resized: bool = False  # the side with more of them has smaller ones: their number tells of no more work


class PartChange(msgspec.Struct, kw_only=True, frozen=True):
    """One part's share of the step's change, ms a step; all of them add up to it."""

    name: str  # a part of the partition but compute, of which each kernel kind is one; or `rest`
    change_ms: float
    low_ms: float  # bounds of all parts hold together in 95 of 100 comparisons
    high_ms: float
    baseline_ms: float
    other_ms: float
    rank: int | None = None  # whose partition this is; None: the mean rank's
    others_ms: float | None = None  # of that rank's, the same part's mean change on the other ranks
    #: Of the change, what other convolutions and products make, which libraries choose anew in each run; the bounds
    #: hold it. None: nothing, or it is no such choice, or several runs a side tell how it falls.
    chosen_ms: float | None = None
    work: CountedWork | None = (
        None  # of a kernel kind; None: steps launch more at one time than at another, or are not traced
    )

    @property
    def within_noise(self) -> bool:
        return self.low_ms <= 0.0 <= self.high_ms

    @property
    def of_one_rank(self) -> bool:
        """Tell whether the change is its rank's, and not as much the others'."""
        if self.rank is None or self.others_ms is None:
            return self.rank is not None
        return self.others_ms * self.change_ms <= 0 or abs(self.others_ms) < _ALIKE * abs(self.change_ms)

    @property
    def more_done(self) -> bool:
        """Tell whether one side launches kernels of the part that the other has not."""
        return self.work is not None and self.work.change_ms is not None

    @property
    def other_calls(self) -> bool:
        """Tell whether one side launches more of the part's kernels, be they the other's as well or others in turn."""
        return self.work is not None and self.work.baseline_calls != self.work.other_calls

    @property
    def counted(self) -> CountedWork | None:
        """Return the work that is done besides, where that is what is sure of the change: the change may be noise, or
        is another rank's, which a slow window made the one that the others wait for.
        """
        if self.work is None or self.work.change_ms is None:
            return None
        elsewhere = self.rank is not None and self.work.rank not in (None, self.rank)
        return self.work if self.within_noise or elsewhere else None

    @property
    def told_ms(self) -> float | None:
        """Return what is sure of the change: the time of what is done besides, or all of it; None where it is noise."""
        if self.counted is not None:
            return self.counted.change_ms
        return None if self.within_noise else self.change_ms


class KernelChange(msgspec.Struct, kw_only=True, frozen=True):
    """The kernels of one operator, or of one name and size, on both sides; µs a step of one rank."""

    operator: str | None
    kind: str
    matched_by: MatchedBy
    baseline_name: str | None
    other_name: str | None
    baseline_calls: float
    other_calls: float
    baseline_us: float
    other_us: float
    ratio: float | None  # OTHER's time over the baseline's, a call
    share: float | None  # of the kernels' change in all
    bound: Bound = "unknown"
    expected_ratio: float | None = None  # that the two devices' data sheets lead to expect


class AmountChange(msgspec.Struct, kw_only=True, frozen=True):
    """Something of which a rank's step does another amount: of samples, FLOPs a sample, collectives, bytes."""

    amount: Amount
    operation: str | None  # of collectives and of what they send
    baseline: float  # of samples, a rank's in the mean
    other: float


class GapChange(msgspec.Struct, kw_only=True, frozen=True):
    """A place of a CPU rank's step at which its loop stands still for longer, or less long, in nearly all steps; ms."""

    rank: int
    before: str | None  # the operator that comes next, or the call that it begins; None: the step's end
    place: LoopPlace | None = None  # where in the loop that is; None: nothing tells
    change_ms: float  # of the median step
    low_ms: float  # between nine of ten steps of both sides
    high_ms: float
    baseline_ms: float
    other_ms: float


class LateChange(msgspec.Struct, kw_only=True, frozen=True):
    """A rank on CPUs that keeps the others waiting for longer, or less long, in the median of all steady steps; ms.

    It is how long after all others it first waits for them, without what either waited for a core.
    """

    rank: int
    change_ms: float
    low_ms: float  # 95% of all ranks at once
    high_ms: float
    baseline_ms: float  # 0: others are as late
    other_ms: float


class IrregularChange(msgspec.Struct, kw_only=True, frozen=True):
    """Steps that are far longer now and then on a side, at no period, of which a median's change says nothing either.

    `change_ms` is by how much more the mean step is longer than the median one, as measured; of too few such steps, by
    how much more these alone make it longer, as `analyze` tells them.
    """

    baseline_steps: list[int]  # which they are, by number, of `baseline_of`
    baseline_of: int
    baseline_each_ms: float  # by which one is longer than a typical step
    baseline_ms: float  # by how much the baseline's mean step is longer than its median one
    other_steps: list[int]
    other_of: int
    other_each_ms: float
    change_ms: float  # of the mean step, with its 95% bounds
    low_ms: float
    high_ms: float
    differs: bool  # beyond noise, and worth a word
    too_few: bool = False  # they make much of the mean step as measured, at too few places to tell how often they come

    @property
    def longer_steps(self) -> list[int]:
        """Which they are on the side whose mean step is longer for them."""
        return self.other_steps if self.change_ms > 0 else self.baseline_steps


class FoundAlone(msgspec.Struct, kw_only=True, frozen=True):
    """A cause that is sure in the runs of one side, and none in the other's."""

    side: Side
    finding: Finding  # `ms` of that side's step; `reference_ms`: what the same may cost the other
    like_ms: float | None = None  # what a cause of its code costs the other, which is another; None: it has none


#: The settings that say with how many threads the ranks of one host compute on its cores, and how many of these are
#: more than those.
COMPUTE_THREADS, BEYOND_CORES = "compute_threads", "threads_beyond_cores"


class Setting(msgspec.Struct, kw_only=True, frozen=True):
    """Something of the surroundings that differs."""

    key: str
    baseline: str | None
    other: str | None
    likely: bool = False  # of the kind that changes what changed


class PointChange(msgspec.Struct, kw_only=True, frozen=True):
    """One point of two sweeps: OTHER's bandwidth over the baseline's."""

    operation: str
    bytes: int
    dtype: str
    group_size: int
    variant: str
    baseline_us: float | None
    other_us: float | None
    baseline_bus_gb_s: float | None
    other_bus_gb_s: float | None
    ratio: float | None
    low: float | None = None  # None: neither side tells its spread
    high: float | None = None
    differs: bool = False  # with all points tested at once (Holm)


class GateLine(msgspec.Struct, kw_only=True, frozen=True):
    """One `--fail-if`, and whether it held."""

    expression: str
    held: bool  # false: the gate fails
    #: That noise reaches across the limit, so that nothing tells whether the change is beyond it: that fails nothing.
    untold: bool = False
    text: str


class Comparison(msgspec.Struct, kw_only=True):
    """Two measurements side by side; of two studies, the worst of `members`, all of which are told."""

    schema: int = SCHEMA
    baseline: str
    other: str
    kind: Kind = "run"
    verdict: Verdict
    reason: Reason | None = None  # of `not_comparable`, or why it is compared by rate
    change_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    baseline_ms: float | None = None  # the step
    other_ms: float | None = None
    by_rate: float | None = None  # OTHER's times are multiplied by this: its work is that much of the baseline's
    samples: SamplesOfSteps | None = None  # None: as many on both sides, or one does not tell
    basis: Basis | None = None
    noise: Noise | None = None
    #: On CPUs, the same with what ranks waited for cores, and without; None: nobody waited, or not all runs tell it.
    as_measured: AsMeasured | None = None
    #: That nothing names the job of one side at least, nor tells how large its steps are: by its kernels alone it is
    #: taken for the other's.
    job_untold: bool = False
    #: On CPUs, that nothing tells of one side at least whether other processes had the ranks' cores.
    cores_untold: bool = False
    parts: list[PartChange] = []
    parts_by: Basis | None = None  # the profiled steps that the parts are of: without recording, or as profiled
    amounts: list[AmountChange] = []  # what a step does more or less of, which is no matter of noise
    gaps: list[GapChange] = []  # on CPUs, most first
    late: LateChange | None = None  # beyond noise; None: nobody is, or rows do not tell
    places: PlacesChange | None = None  # None: the same ranks have most to do, or nothing tells
    recurring: RecurringChange | None = None  # None: no side has any, or one is too short to tell
    irregular: IrregularChange | None = None  # None: no side has any, or rows do not tell
    #: Of a step's change within noise; beyond it, where its parts tell little, what the longer side finds first.
    alone: list[FoundAlone] = []
    of_accused: int | None = None  # the rank that is named first, by a cause or as one that others wait for: its parts
    kernels: list[KernelChange] = []
    kernels_rank: int | None = None  # whose they are; None: nothing tells
    matched_share: float | None = None  # of the kernels' time on both sides, what has a counterpart
    points: list[PointChange] = []  # of sweeps
    only_baseline: list[str] = []
    only_other: list[str] = []
    on_both_sides: list[str] = []  # runs that were given as both
    environment: list[Setting] = []
    gate: list[GateLine] = []
    members: list["Comparison"] = []
    notes: list[str] = []

    @property
    def step_ms(self) -> float:
        """Return the step that shares are of which decide what is told: the mean of both, so that it is the same of A
        beside B and of B beside A.
        """
        return ((self.baseline_ms or 0.0) + (self.other_ms or 0.0)) / 2

    @property
    def sure_as_measured(self) -> AsMeasured | None:
        """Return the bounds of a change that was measured for sure, and that nothing but waits for cores may have made:
        then the job's own step need not be longer. None where it is not so.
        """
        told = self.as_measured
        return told if self.verdict == "same" and told is not None and told.low_ms * told.high_ms > 0 else None

    @property
    def in_the_mean(self) -> list[RecurringChange | IrregularChange]:
        """Return what steps that are longer every so often, or now and then, cost more or less beyond noise: the step's
        change is a median's, and a job pays its mean step.
        """
        return [one for one in (self.recurring, self.irregular) if one is not None and one.differs]

    @property
    def standing(self) -> tuple[float, float, float] | None:
        """Return how much longer, or less long, the loop of the rank that others wait for stands still, with bounds,
        ms: of a step's change that noise may hide, what noise does not make. None where that is another rank's, or the
        step did not change by more than half of it.
        """
        own = [one for one in self.gaps if any(part.rank == one.rank for part in self.parts)]
        told = [sum(getattr(one, name) for one in own) for name in ("change_ms", "low_ms", "high_ms")]
        change, low, high = told
        if self.verdict != "same" or not own or (self.change_ms or 0.0) / change < CONFIRMS or self.by_rate is not None:
            return None
        return change, low, high

    @property
    def by_cause(self) -> tuple[float, float, float] | None:
        """Return by how much a step is longer, or shorter, for the cause that comes first of those that one side alone
        has, with bounds, ms: known by the steps that it is in, however runs differ by all else. None where there is
        none, it is in some steps alone, or the step did not change by more than half of it.
        """
        if not self.alone or self.by_rate is not None or self.gaps:
            return None  # where a loop stands still is told by its place
        finding, sign = self.alone[0].finding, 1 if self.alone[0].side == "other" else -1
        if not known_ms_of(finding, sign * (self.change_ms or 0.0)):
            return None
        low, ms, high = (sign * (one or 0.0) for one in (finding.low_ms, finding.ms, finding.high_ms))
        return ms, min(low, high), max(low, high)

    @property
    def change(self) -> float | None:
        """Return the change as a share of the baseline's step."""
        return self.change_ms / self.baseline_ms if self.change_ms is not None and self.baseline_ms else None

    def is_of_the_window(self, part: PartChange) -> bool:
        """Tell whether a part's change may be the profiled steps' alone, by their pace or by the longer steps among
        them: those without a profiler take back as much, and have no such change themselves.
        """
        rest = next((one.change_ms for one in self.parts if one.name == REST), 0.0)
        if rest * part.change_ms >= 0 or abs(rest) < abs(part.change_ms):
            return False
        if part.name not in _AT_ITS_PACE and not self._may_recur(part):
            return False
        low, high = self.low_ms or 0.0, self.high_ms or 0.0
        return self.verdict == "same" or not low <= part.change_ms <= high

    def _is_beyond_window(self, rest: PartChange) -> bool:
        """Tell whether what profiled steps do not show changed beyond noise, without what it takes back of parts that
        are of the window alone, and is most of what is told then.
        """
        back_ms = sum(one.change_ms for one in self.parts if not one.within_noise and self.is_of_the_window(one))
        own_ms, bound_ms = rest.change_ms + back_ms, rest.low_ms if rest.change_ms > 0 else rest.high_ms
        return (bound_ms + back_ms) * rest.change_ms > 0 and own_ms / rest.change_ms > _MOSTLY_OWN

    def is_of_longer_steps(self, part: PartChange) -> bool:
        """Tell whether a part's change may be that of the longer steps among the profiled ones, which are the job's."""
        return self._may_recur(part) and part.name not in _AT_ITS_PACE and self.is_of_the_window(part)

    def _may_recur(self, part: PartChange) -> bool:
        often = self.recurring
        each_ms = often.other_each_ms - often.baseline_each_ms if often is not None and often.differs else 0.0
        return 0 < part.change_ms / each_ms <= 1 if each_ms else False

    def is_sure(self, part: PartChange) -> bool:
        """Tell whether a part's change is beyond noise and one of the job's steps. What profiled steps do not show is
        a part of a change that is beyond noise in the same direction, and else tells of these steps alone; so does
        what only takes back their own changes.
        """
        if part.name == REST and (self.verdict == "same" or part.change_ms * (self.change_ms or 0.0) <= 0):
            return False
        if part.name == REST and not self._is_beyond_window(part):
            return False
        return not part.within_noise and not self.is_of_the_window(part)
