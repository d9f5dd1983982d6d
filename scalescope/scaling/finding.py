"""Findings, typed: what costs a step time, with the cause's code, its size, the evidence and the remedy.

Every sentence that says what is wrong is made from these, and nothing here is a sentence: `scalescope.report` has the
words for every code. docs/concepts.md explains the vocabulary, docs/method/findings.md each code.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from scalescope.records.rows import Origin

#: What can be found. A code names the cause, not its symptom.
Code = Literal[
    "own_work",  # a kernel that the other ranks do not run
    "more_work",  # the same kernels more often than on the other ranks, or on more data
    "slower_compute",  # the same kernels, longer than on the other ranks
    "alternating_load",  # ranks take turns in being late: nobody's fault alone, and all lose
    "data_loading",  # the host fetches a batch while the device has nothing to do
    "host_stall",  # a gap in which the host launches nothing: sleep, garbage collection, I/O, a lock
    "host_starved",  # everything that a rank's host does takes longer than on the others: its cores are shared
    "host_bound",  # the devices wait for launches, on all ranks
    "element_reads",  # a loop of Python reads a host's tensors value by value
    "synchronising",  # the host waits for the device in mid-step, which then waits for the host
    "recompilation",
    "allocation",  # memory taken from, or given back to, the driver in a step
    "copies",  # from one memory to another, that nothing hides
    "small_buckets",
    "small_collectives",  # figures exchanged one by one, units of shards too small: each costs a round of messages
    "late_bucket",  # gradients are handed over when the backward pass is over, or nearly
    "slow_transfer",  # data move slower than they do alone, or than the links allow
    "exposed_transfer",  # data move as they should, and nothing hides it
    "debug_mode",  # anomaly detection, or launches that wait for their kernels, left on
    "late_root",  # the others wait for the root of a broadcast
    "contention",  # compute is slowed by collectives beside it
    "throttled",  # a device's clocks are held down
    "pipeline_bubble",
    "expert_imbalance",
    "unsteady",  # steps differ by more than anything else explains
    "profiler_cost",  # recording slows the host, and by how much is not known
    "nothing",
]

CODES: tuple[Code, ...] = get_args(Code)
#: What to do about it, in a loop of anybody's: a code, whose words are made where they are shown.
Cure = Literal[
    "look_at_rank",  # see what launches this there
    "no_anomaly_detection",
    "launch_without_waiting",
    "even_out",  # the ranks' batches
    "look_at_device",
    "load_ahead",
    "launch_apart",  # in a process of its own, what another thread of this one launches
    "load_faster",  # ahead it is already: batches are made slower than they are taken
    "look_at_host",
    "less_python",  # at a place that a host comes to many times a step
    "tensors_not_objects",  # are to be exchanged
    "do_less_often",  # what some steps do beside training
    "free_cores",
    "free_interpreter",  # of what another thread of the process computes in Python
    "fewer_threads",
    "cheaper_workers",  # of loaders, on the cores that ranks compute on
    "compile",
    "whole_tensors",  # in place of a loop of Python over their elements, rows, or over many of them
    "drop_synchronisation",
    "read_at_once",  # what is read value by value
    "fixed_shapes",
    "keep_memory",
    "copy_ahead",
    "larger_buckets",
    "merge_collectives",
    "merge_tensors",  # gradients, or figures: their sizes leave it open
    "larger_units",  # of FSDP
    "smaller_buckets",
    "hand_over_early",
    "narrow_gradients",
    "look_at_links",
    "free_root",
    "fewer_channels",
    "cool_device",
    "more_micro_batches",
    "even_stages",  # of a pipeline
    "balance_experts",
    "measure_again",
    "profile_longer",  # in more windows, of which one may show why
    "give_step_ms",
    "faster_kernels",
    "matrix_units",  # for products that run in fp32 without them
    "channels_last",  # the layout that convolutions compute in
    "pad_sides",  # of products, to multiples of eight elements
    "narrower_numbers",  # for what computes in fp64
    "exchange_once",  # gradients of several backward passes
    "send_less",
    "reduce_in_fp32",  # what travels in fp64
    "broadcast_less",  # DDP's buffers before each forward pass
    "record_sizes",  # of collectives, which tell what to do about them
]


class EvidenceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that speaks for a finding: figures and names, a step, on the finding's rank where it has one."""

    kind: Literal["activity", "operator", "annotation", "figure"]
    name: str
    ms: float | None = None
    others_ms: float | None = None  # what the other ranks take for it, where that is compared
    calls: float | None = None
    share: float | None = None  # of the step, unless the name says of what
    value: float | None = None  # of a figure, in the unit that its name ends with


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """What makes the change."""

    cure: Cure
    overrides: tuple[str, ...] = ()  # of a job of ours; empty where no key does it, and for anybody else's loop
    size: float | None = None  # what the cure is given: MiB of a bucket, threads of a rank, ranks to even out
    on_cpu: bool = False  # the ranks compute on CPUs
    backend: str | None = None  # by which they talk, where that is known
    inference: bool = False  # the job trains nothing
    jax: bool = False  # the job is written in JAX
    compiled: bool = False  # its kernels are of torch.compile's making already
    alone: bool = False  # one rank is the whole job
    one_host: bool = False  # all its ranks are known to run on one host
    origin: Origin | None = None  # who wrote the job's loop, where that is known


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One cause of lost time. `ms` is how much shorter the step as run would be without it."""

    code: Code
    rank: int | None = None  # None: nobody's alone
    ms: float | None  # None where that cannot be told (profiler_cost), or nothing is lost (nothing)
    low_ms: float | None
    high_ms: float | None
    fraction: float | None = None  # ms of the step as run
    evidence: tuple[EvidenceRow, ...] = ()
    remedy: Remedy | None = None
    backed: Literal["replay", "measured", "bound", "none"]  # how ms is known
    at_most: bool = False  # ms is a bound, not an expectation
    at_least: bool = False  # ms is what is sure of it, and it may cost more
    reference_ms: float | None = None  # what it costs the reference of `--against`; None: that was not asked


class Reason(msgspec.Struct, frozen=True):
    """Why there is no answer: a code to decide by, and words to show."""

    code: Literal[
        "not_replayed",
        "stalled",
        "unfaithful",
        "unsplit",
        "lost",  # what the profiler lost may be what is asked for
        "several_devices",  # of one process
        "unknown_collectives",  # which pass for compute
        "other_steps",  # of some ranks than of others
    ]
    text: str


#: The figure that says that the loaders have worker processes: what ranks wait for batches, ms.
LOADER_WORKERS = "loader_workers"
#: Evidence of a cause that is there in some steps alone: `ms` in each of `calls` steps, of `value`.
IN_STEPS = "in_steps"
#: Evidence that such a cause comes back: it takes `ms` in every `value`-th step.
EVERY = "every_so_many_steps"
#: Evidence of gaps that are there whenever a host comes to a place: `ms` is what one of them typically takes, `calls`
#: how many there are a step; the name ends with the operator before them.
EACH_PASS = "each_pass_after"
#: Evidence that others have the cores: `calls` of a rank's operators a step take `ms` longer than at their shortest,
#: and most of them as long as ever; all together `value` times as long.
CORES_BY_TURNS = "cores_by_turns"
#: Evidence of loops of Python, `calls` and `ms` a step: how many operators of a step's one runs, and what lies between
#: them (the name ends with what is before it); how many values are read one by one, and what that takes.
LOOP_AFTER, ELEMENTS_READ = "loop_of_python_after", "elements_read"
#: Evidence of waits that last Python's switch interval: `calls` a step, which take `ms`.
LOCK_WAITS = "lock_waits"
#: Evidence that a finding is of the job's own steady steps, not of those that a window holds: `ms` is their mean.
STEADY_STEPS = "steady_steps"
#: Evidence that all steps say how late a rank is, whatever its window holds: `ms` in the mean, of `value` steps.
LATE = "late_in_all_steps"
#: The figure of what threads that run no operators launch in the same process, a rank and step.
BESIDE = "launched_beside"
#: The figure of waits of all hosts for their devices, a step: by those a stall of one host shows, which else they hide.
SHOWN_BY_WAITS = "shown_by_waits"
#: The figure of launching that costs nothing as long as devices do what they need not.
HIDDEN = "hidden_by_devices"
#: What devices do: it is there whatever recording costs the hosts.
ON_THE_DEVICE: tuple[Code, ...] = ("own_work", "more_work", "slower_compute", "throttled", "alternating_load")
#: The figure that says what kernels take that compute values for being read alone, as it seems.
READ_VALUES = "read_values"
#: Figures: how many times the others' inputs a rank computes on, by shapes or as its script told; and how many times
#: what it computes in one step it does in another.
INPUTS, LOADS = "times_the_inputs", "times_the_load"
#: What goes with a cause whose bound is more than it is seen to take: waits behind it, or launches that others hide.
GOES_WITH_IT = "goes_with_it"
#: The figure that says how many of its launches a step look for NaN behind the backward pass's nodes.
ANOMALY = "anomaly_detection"
#: The figure that says how many launches a step a rank makes that the others do not: as many in every step, counted.
BESIDES = "launches_besides"
#: The figure of what a host takes in and around a block of launches that one rank alone makes, beside its operators.
AROUND = "host_around"
#: Evidence of a step without another finding: communication that nothing hides, or that nothing runs, for much of it.
EXPOSED, IDLE = "exposed_communication", "idle"
#: Evidence that steps do not do the same: they launch from `value` to `calls` kernels.
LAUNCHES_DIFFER = "launches_differ"
#: Evidence of steps that are longer now and then: how many times as much as in the others a device computes there.
TIMES_COMPUTE = "times_the_compute"
#: What may be waiting for another rank before copy engines move data, which no trace tells.
UNTOLD_WAITS = "untold_waits"
#: Evidence of a step without another finding, by its kernels' names: what they take that multiply in fp32 without the
#: matrix units, in fp64, or sides that are no multiples of eight elements; that turn layouts around convolutions; that
#: sum up gradients by sorted positions; that are an optimizer's single operations (`value`: to save), or a network's.
FULL_PRECISION, DOUBLE_PRECISION, UNALIGNED_PRODUCTS = "full_precision", "double_precision", "unaligned_products"
LAYOUT_CONVERSIONS, SORTED_SCATTERS = "layout_conversions", "sorted_scatters"
UNFUSED_OPTIMISER, UNFUSED = "unfused_optimiser", "unfused"
#: Evidence that a few of a rank's launches, now here and now there, take longer than on the others, or than the same
#: ones in other steps, and the rest do not: `calls` a step, by `value` ms each.
BY_TURNS, OWN_TURNS = "by_turns", "by_turns_of_others"
#: The figure that says in how many backward passes a step the same gradients are exchanged.
PASSES = "backward_passes"
#: The figure that says how many times the others' even the quickest of a rank's products take in each step.
AT_LEAST = "times_as_long_at_least"
#: Bounds of which nearly all can be had, or of which a setting brings what is sure of them.
_TAKEN_AWAY: tuple[Code, ...] = ("host_bound", "copies", "late_bucket")
#: A cost whose interval begins below this reads as 0.00 ms.
_ZERO_MS = 0.005
#: What noise may have made, and costs less than this share of what it has not, is no word worth; and what is less than
#: this share of what noise may have made is not what to begin with.
_FAR_BELOW = 0.25
#: What costs this share of what is bounded, for sure, comes before the bound: sizes are known within a fifth or so, and
#: of a bound it is not known that any of it can be had.
_NEARLY = 0.75
#: What is there for sure and costs less than this share of the step is not what to begin with, either.
_TRIFLE = 0.02
#: Bounds that weigh less than this share of the step are not what it is about.
LITTLE = 0.03
#: … where hosts compute: so much Python runs between the operators of any eager step.
_LITTLE_BETWEEN_OPERATORS = 0.08
_AROUND_COMPUTE: tuple[Code, ...] = ("copies", "host_bound", "synchronising")
#: … nor those that weigh less than computing in a needless width, or an unfused optimizer, does, to this share of it.
_SOME, _TOO_WIDE = 0.1, (DOUBLE_PRECISION, FULL_PRECISION)


def bounded(evidence: Sequence[EvidenceRow], ms: float) -> tuple[EvidenceRow, ...]:
    """Return the evidence of what costs so much at most, with what of that is more than the time that it names."""
    named = next((row.ms for row in evidence if row.ms is not None), None)
    if named is None or ms - named < _ZERO_MS:
        return tuple(evidence)
    return (*evidence, EvidenceRow(kind="figure", name=GOES_WITH_IT, ms=ms - named))


def bound_of(code: Code, ms: float, step_ms: float, evidence: Sequence[EvidenceRow], remedy: Remedy) -> Finding:
    """Return what can be had of a step at most, and maybe nothing, as no replay but its own parts tell."""
    return Finding(
        code=code,
        ms=ms,
        low_ms=0.0,
        high_ms=ms,
        fraction=ms / step_ms,
        evidence=tuple(evidence),
        remedy=remedy,
        backed="bound",
        at_most=True,
    )


def is_within_noise(finding: Finding) -> bool:
    """Tell whether a finding may cost nothing at all, by its interval: then it accuses nobody."""
    if finding.ms is None or finding.low_ms is None:
        return False
    return finding.low_ms < _ZERO_MS and (finding.rank is not None or not finding.at_most)  # a bound says "at most"


def is_lost_in_noise(finding: Finding) -> bool:
    """Tell whether a finding is no more than steps differ by themselves: nothing that was seen to happen, and no cost.

    A host that stood still in some steps did so, and a rank with more to compute has it, whatever that costs.
    """
    return is_within_noise(finding) and not is_certain(finding) and not is_now_and_then(finding)


def worth_telling(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings but for those that are lost in noise and, even so, far below the largest that is not."""
    largest = max((weight(one) for one in findings if not is_lost_in_noise(one)), default=0.0)
    return [one for one in findings if not (is_lost_in_noise(one) and weight(one) < _FAR_BELOW * largest)]


def hidden_by_noise(findings: Sequence[Finding]) -> Finding | None:
    """Return what a rank may cost, or not, where what is sure is far below; None where it is not, or nothing is."""
    lost = [one for one in findings if one.rank is not None and is_lost_in_noise(one)]
    first = max(lost, key=weight, default=None)
    if first is None:
        return None
    sure = max((weight(one) for one in findings if not is_lost_in_noise(one)), default=0.0)
    return first if 0 < sure < _FAR_BELOW * weight(first) else None


def worth_leading(findings: Sequence[Finding]) -> Finding | None:
    """Return the costliest finding that noise has not made; None where all are far below one that noise may have made.

    What costs a hundredth of the step for sure is not what such a step is about. What is counted is there all the
    same, however large noise makes another: it leads unless it is no more than that hundredth or so.
    """
    told = [one for one in findings if one.ms is not None]
    least = _FAR_BELOW * max(map(weight, told), default=0.0)
    sure = [one for one in told if is_certain(one) or not is_within_noise(one)]
    return next((one for one in sure if weight(one) >= least or _is_counted_and_no_trifle(one)), None)


def _is_counted_and_no_trifle(finding: Finding) -> bool:
    return is_certain(finding) and (finding.fraction is None or finding.fraction >= _TRIFLE)


def is_known(finding: Finding) -> bool:
    """Tell whether a cause is known to be there of which its trace tells but what that costs at least."""
    if any(row.name == CORES_BY_TURNS for row in finding.evidence):
        return True
    return finding.remedy is not None and finding.remedy.cure == "fewer_threads"


def is_certain(finding: Finding) -> bool:
    """Tell whether the cause is there for sure, whatever it costs: what a rank is given is no matter of its machine."""
    return is_counted(finding.evidence)


def is_counted(evidence: Sequence[EvidenceRow]) -> bool:
    """Tell whether evidence says what a rank does beyond the others in every step: its inputs, launches of its own,
    products that are longer without exception, or waits for the interpreter's lock.
    """
    return any(row.name in (INPUTS, BESIDES, AT_LEAST, LOCK_WAITS) for row in evidence)


def is_by_turns(evidence: Sequence[EvidenceRow]) -> bool:
    """Tell whether evidence says that another process has a rank's device, or its cores, by turns."""
    return any(row.name == BY_TURNS for row in evidence)


def is_now_and_then(finding: Finding) -> bool:
    """Tell whether a cause is there in some of the steps alone, by its evidence."""
    return any(row.name == IN_STEPS for row in finding.evidence)


def is_of_one_step(finding: Finding) -> bool:
    """Tell whether a cause is known of one step alone, of which nobody can tell what is usual."""
    return any(row.name == IN_STEPS and row.value == 1 for row in finding.evidence)


def is_all_of_it(finding: Finding) -> bool:
    """Tell whether a finding is all the transfer that nothing hides, of which nothing tells that any is needless: what
    the job is, and no fault of it.
    """
    bare = next((row.ms for row in finding.evidence if row.name == EXPOSED), None)
    told = finding.remedy is None or finding.remedy.cure == "send_less"
    return finding.code == "exposed_transfer" and bare is not None and finding.ms == bare and told


def is_of_steady_steps(finding: Finding) -> bool:
    """Tell whether a cause is known by the job's own timing of its steady steps, whatever its traces hold."""
    return any(row.name == STEADY_STEPS for row in finding.evidence)


def is_late(finding: Finding) -> bool:
    """Tell whether what a rank costs is known by how late it is in all steps, by its evidence."""
    return any(row.name == LATE for row in finding.evidence)


def weight(finding: Finding, *, in_range: bool = False) -> float:
    """Return what a finding weighs beside others, ms: a bound is no expectation, so half of it counts.

    Launching can be taken away nearly whole, by replaying a recorded step (CUDA graphs), and so can copies, by pinned
    memory and a stream of their own; of a gradient that comes last, narrower ones take away what its interval begins
    with: what is sure of them counts in full, and half of the rest. `in_range`: of the step as run a range alone is
    known. Then the interval is wide for what recording costs, and not for what can be had: its middle counts in full.
    """
    ms = finding.ms or 0.0
    if finding.at_most:
        sure = _expected_ms(finding) if in_range else max(0.0, finding.low_ms or 0.0)
        return (ms + (min(sure, ms) if finding.code in _TAKEN_AWAY else 0.0)) / 2
    return ms


def _expected_ms(bound: Finding) -> float:
    """Return the middle of a bound's interval, ms; 0 where that reaches down to nothing."""
    low, high = bound.low_ms or 0.0, bound.high_ms or 0.0
    return (low + high) / 2 if low > 0 else 0.0


def are_little_at_most(findings: Sequence[Finding], step_ms: float, *, on_cpus: bool = False) -> bool:
    """Tell whether all that was found are bounds that weigh little, or nothing was: what such a step is about is its
    compute, and a bound of a hundredth or two around that, of which nobody knows how much can be had, goes behind it.
    What one rank has, or is counted, or ranks send, is there all the same. On CPUs what noise may have made is said
    behind it, too.

    Where `nothing` is among them and tells a needless width, or an unfused optimizer, that is a bound, too, and what
    weighs less goes behind it.
    """
    rows = [row for one in findings if one.code == "nothing" for row in one.evidence]
    needless = [(row.ms or 0.0) / 2 if row.name in _TOO_WIDE else row.value or 0.0 for row in rows
                if row.name in (*_TOO_WIDE, UNFUSED_OPTIMISER)]  # fmt: skip
    little_ms = max(LITTLE * step_ms, min(max(needless, default=0.0), _SOME * step_ms))
    between_ms = max(little_ms, _LITTLE_BETWEEN_OPERATORS * step_ms) if on_cpus else little_ms
    told = [one for one in findings if one.code != "nothing" and not (on_cpus and is_lost_in_noise(one))]
    return all(_is_little(one, between_ms if one.code == "host_bound" else little_ms) for one in told)


def _is_little(one: Finding, little_ms: float) -> bool:
    bound = one.at_most and one.code in _AROUND_COMPUTE and one.rank is None and not is_certain(one)
    return bound and weight(one) < little_ms


def ranked(findings: Sequence[Finding], *, in_range: bool = False) -> list[Finding]:
    """Return the findings, most costly first; what the job is (`is_all_of_it`) behind faults that are there for sure.

    Of all that travels, none is needless as far as is known; a rank that stands still is to be mended, if it costs
    less. A fault that is far below it goes behind it all the same, and so does what all ranks do alike, which is no
    one's fault, if it costs less than nearly as much. A bound goes behind a fault that costs nearly as much: of the one
    nobody knows how much can be had, the other can be mended. `in_range`: see `weight`.
    """
    sure = [one for one in findings if not one.at_most and ((one.low_ms or 0.0) > 0 or is_certain(one))]

    def key(one: Finding) -> tuple[float, bool, float]:
        own = weight(one, in_range=in_range)
        if not (one.at_most or is_all_of_it(one)):
            return -own, False, -own
        of_all, of_rank = _NEARLY, _FAR_BELOW if is_all_of_it(one) else _NEARLY
        before = [weight(fault) for fault in sure if weight(fault) >= (of_all if fault.rank is None else of_rank) * own]
        return -min([own, *before]), True, -own

    return sorted(findings, key=key)


def hiding(findings: Sequence[Finding]) -> Finding | None:
    """Return what the devices do behind which the first finding hides; None where it is felt as it is."""
    if not findings or all(row.name != HIDDEN for row in findings[0].evidence):
        return None
    return next((one for one in findings[1:] if one.code in ON_THE_DEVICE), None)


def as_costly(findings: Sequence[Finding]) -> Finding | None:
    """Return the second finding where it may as well be the first: each one's cost lies in the other's interval."""
    if len(findings) < 2:
        return None
    first, second = findings[:2]
    if is_within_noise(first) or is_within_noise(second) or (first.low_ms or 0.0) <= 0:
        return None  # that it may cost nothing says more
    alike = _may_cost(first, second.ms) and _may_cost(second, first.ms)
    return second if alike and not is_all_of_it(second) else None  # which is no cause


def _may_cost(finding: Finding, ms: float | None) -> bool:
    if ms is None or finding.low_ms is None or finding.high_ms is None:
        return False
    return finding.low_ms <= ms <= finding.high_ms
