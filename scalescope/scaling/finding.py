"""Findings, typed: what costs a step time, with the cause's code, its size, the evidence and the remedy.

Every sentence that says what is wrong is made from these, and nothing here is a sentence: `scalescope.report` has the
words for every code. docs/concepts.md explains the vocabulary, docs/method/findings.md each code.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec
from msgspec import structs

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
    "unfused_optimizer",  # it runs operator after operator where one would do: on CPUs, on all ranks
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
    "same_kernels",  # as the others run: the same precision and layout
    "no_anomaly_detection",
    "launch_without_waiting",
    "even_out",  # the ranks' batches
    "even_out_lengths",  # of their sequences
    "look_at_device",
    "load_ahead",
    "launch_apart",  # in a process of its own, what another thread of this one launches
    "load_faster",  # ahead it is already: batches are made slower than they are taken
    "look_at_host",
    "find_wait",  # of a host that sleeps at a place
    "find_python",  # … or computes there, in what no operator tells
    "name_loading",  # which all hosts most likely do there; then load ahead
    "collect_less",  # of Python's garbage
    "less_python",  # at a place that a host comes to many times a step
    "tensors_not_objects",  # are to be exchanged
    "do_less_often",  # what some steps do beside training
    "free_cores",
    "core_for_rank",  # that waits for one far longer than the others do
    "more_cores_for_rank",  # that is bound to fewer than the others may run on
    "core_for_thread",  # of a rank's own process, which takes turns with the loop
    "free_interpreter",  # of what another thread of the process computes in Python
    "fewer_threads",
    "cheaper_workers",  # of loaders, on the cores that ranks compute on
    "compile",
    "whole_tensors",  # in place of a loop of Python over their elements, rows, or over many of them
    "drop_synchronisation",
    "pin_memory",  # of batches
    "read_at_once",  # what is read value by value
    "fuse_optimizer",  # to one operator
    "fixed_shapes",
    "keep_memory",
    "copy_ahead",
    "larger_buckets",
    "merge_collectives",
    "merge_tensors",  # gradients, or figures: their sizes leave it open
    "larger_units",  # of FSDP
    "smaller_buckets",
    "fewer_cuts",  # of a compiled graph, at the edges of gradient buckets
    "no_cuts",
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
    "profile_rank",  # whose trace alone is missing
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


#: How a finding's ranks stand to others that are late as well.
Order = Literal[
    "first",  # they are the latest: without their cause the step waits for the others
    "together",  # they are late by about as much: only mending all of them brings what they cost
    "after",  # the others are later: what the finding costs shows once those are mended
]


#: Where in a training loop something lies, by what comes before and after: as torch annotates it, or autograd's frames.
LoopPlace = Literal[
    "in_forward",
    "in_backward",
    "in_optimizer",
    "before_forward",  # and in the step of that forward pass
    "after_forward",  # before the backward pass
    "after_backward",  # before the optimizer's step
    "after_optimizer",  # before the step's end; of forward passes nothing is annotated
    "optimizer_to_forward",  # after the one, before the next step's other
    "backward_to_forward",
    "before_first",  # operator of the step
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
    place: LoopPlace | None = None  # of a gap: where in the loop it lies, where that is known
    read: Literal["before", "after"] | None = None  # of a gap: `.item()` reads a value right before or after it


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
    accumulates: bool = False  # a step adds up gradients of several passes before it exchanges them
    alone: bool = False  # one rank is the whole job
    one_host: bool = False  # all its ranks are known to run on one host
    lacks_cores: bool = False  # it needs some, and the ranks compute on all: it brings what the cause costs at most
    origin: Origin | None = None  # who wrote the job's loop, where that is known


class AlsoLate(msgspec.Struct, frozen=True, kw_only=True):
    """Other ranks that are late beside a finding's: the step waits for the latest, so one hides what another costs."""

    ranks: tuple[int, ...]
    order: Order
    alone_ms: float  # what mending the finding by itself brings
    together_ms: float  # what mending it and these ranks' causes brings
    alike: bool = False  # these do the same as the finding's rank


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One cause of lost time. `ms` is how much shorter the step as run would be without it.

    Of a cause that several ranks have, and not all, that is without it on all of `ranks`.
    """

    code: Code
    rank: int | None = None  # None: nobody's alone; of several ranks the first
    ranks: tuple[int, ...] = ()  # that have the same cause, where several do; empty for one rank, and for all
    one_ms: float | None = None  # of several ranks: what mending it on one of them alone brings, at best
    also_late: AlsoLate | None = None  # other ranks, late by other amounts or causes
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


LOADER_WORKERS = "loader_workers"  # the figure that loaders have worker processes: what ranks wait for batches, ms
MAY_BE_OTHERS = "may_be_others"  # what of a cost may as well have other reasons, ms: half of what may go with it
#: Evidence of a cause that is there in some steps alone: `ms` in each of `calls` steps, of `value`.
IN_STEPS = "in_steps"
NOT_IN_STEPS = "not_in_steps"  # … and in none of the job's own `value` steps around the window
EVERY = "every_so_many_steps"  # … and that it comes back: it takes `ms` in every `value`-th step
#: Evidence of which steps have it, where few do and no period is known: `value` is one's place among them, from 1 on.
AT_STEP = "at_step"
STEP_NUMBER = "step_number"  # … or by the number that the job counts it with
WAITED_THERE = "waited_for_cores_there"  # … by how much longer its ranks wait for a core there (ms), by their rows
AS_MANY = "as_many_operators"  # … and that it runs no more operators there than in the other steps
STOOD_BEFORE = "stood_before"  # … where nothing is recorded of its host meanwhile: the operator after that follows
#: Evidence of gaps that are there whenever a host comes to a place: `ms` is what one of them typically takes, `calls`
#: how many there are a step; the name ends with the operator before them.
EACH_PASS = "each_pass_after"
#: Evidence that others have the cores: `calls` of a rank's operators a step take `ms` longer than at their shortest,
#: and most of them as long as ever; all together `value` times as long.
CORES_BY_TURNS = "cores_by_turns"
#: Evidence of loops of Python, `calls` and `ms` a step: how many operators of a step's one runs, and what lies between
#: them (the name ends with what is before it); how many values are read one by one, and what that takes.
LOOP_AFTER, ELEMENTS_READ = "loop_of_python_after", "elements_read"
#: Evidence that all hosts stand still before a step's first operator: most likely they load, though nothing says so.
MAY_LOAD = "may_load"
LOCK_WAITS = "lock_waits"  # evidence of waits that last Python's switch interval: `calls` a step, which take `ms`
OWN_THREAD = "own_thread"  # a thread of a rank's own process, whose name follows, uses `value` cores beside its loop
#: What prices threads that take turns: the loop that waits most for a core does so for `ms` of a steady step.
LOOPS_WAIT = "loops_wait"
#: Evidence of one rank: it is bound to fewer cores (`value`) than the ranks of its host may run on.
BOUND_CORES = "bound_cores"
GARBAGE = "garbage_collection"  # evidence that Python's own collector tells of: `calls` times a step, which take `ms`
#: Evidence that a finding is of the job's own steady steps, not of those that a window holds: `ms` is their mean.
STEADY_STEPS = "steady_steps"
#: Evidence that all steps say how late a rank is, whatever its window holds: `ms` in the mean, of `value` steps.
LATE = "late_in_all_steps"
NO_TRACE = "no_trace"  # evidence that of a rank which comes late in all steps there is no trace
#: The figure of what threads that run no operators launch in the same process, a rank and step.
BESIDE = "launched_beside"
#: The figure of waits of all hosts for their devices, a step: by those a stall of one host shows, else hidden.
SHOWN_BY_WAITS = "shown_by_waits"
HIDDEN = "hidden_by_devices"  # the figure of launching that costs nothing as long as devices do what they need not
#: What spreads over all ranks what one of them has more of.
EVENS_OUT: tuple[Cure, ...] = ("even_out", "even_out_lengths")
#: What devices do: it is there whatever recording costs the hosts.
ON_THE_DEVICE: tuple[Code, ...] = ("own_work", "more_work", "slower_compute", "throttled", "alternating_load")
READ_VALUES = "read_values"  # the figure of what kernels take that compute values for being read alone, as it seems
#: The figure of how often a step a rank launches what goes round in its loops over time, and how often the others do.
ROUNDS = "rounds_of_loops"
#: How many times the others' inputs a rank has, by shapes or its script; how many times one step's work another has.
INPUTS, LOADS = "times_the_inputs", "times_the_load"
#: What goes with a cause whose bound is more than it is seen to take: waits behind it, or launches that others hide.
GOES_WITH_IT = "goes_with_it"
ANOMALY = "anomaly_detection"  # how many of its launches a step look for NaN behind the backward pass's nodes
#: The figure that says how many launches a step a rank makes that the others do not: as many in every step, counted.
BESIDES = "launches_besides"
#: … and how many times a step its host alone waits for the device, or oftener than the others' hosts do, counted.
WAITS_BESIDES = "synchronisations_besides"
AROUND = "host_around"  # what a host takes in and around a block of launches that one rank alone makes, beside them
#: Evidence of a step without another finding: communication that nothing hides, or that nothing runs, for much of it;
EXPOSED, IDLE, BETWEEN = "exposed_communication", "idle", "idle_between_operators"  # … as in any eager step of CPUs
#: … of that, where it is split: waits of ranks for each other, and transfer; and the one of two ranks that waits for
#: longer, if it does by far (`value`), for how long it does (`ms`), and for how long the other one does (`others_ms`).
EXPOSED_WAIT, EXPOSED_TRANSFER, ONE_WAITS = "exposed_wait", "exposed_transfer", "one_rank_waits"
#: Evidence that steps do not do the same: they launch from `value` to `calls` kernels.
LAUNCHES_DIFFER = "launches_differ"
#: Evidence of steps that are longer now and then: how many times as much as in the others a device computes there.
TIMES_COMPUTE = "times_the_compute"
#: A row of some longer steps of the window: how many times as long all that the host does takes in them (value).
HOST_SLOWED = "host_slowed"
LATE_RANK = "late_rank"  # names one of several ranks of which a finding is (value), where it is nobody's alone
UNTOLD_WAITS = "untold_waits"  # what may wait for another rank before copy engines move data: no trace tells
#: Evidence of a step without another finding, by its kernels' names: what they take that multiply in fp32 without the
#: matrix units, in fp64, or sides that are no multiples of eight elements; that turn layouts around convolutions; that
#: sum up gradients by sorted positions; that are an optimizer's single operations (`value`: to save), or a network's.
FULL_PRECISION, DOUBLE_PRECISION, UNALIGNED_PRODUCTS = "full_precision", "double_precision", "unaligned_products"
LAYOUT_CONVERSIONS, SORTED_SCATTERS = "layout_conversions", "sorted_scatters"
UNFUSED_OPTIMISER, UNFUSED = "unfused_optimiser", "unfused"
#: Evidence that a few of a rank's launches, now here and now there, take longer than on the others, or than the same
#: ones in other steps, and the rest do not: `calls` a step, by `value` ms each.
BY_TURNS, OWN_TURNS = "by_turns", "by_turns_of_others"
PASSES = "backward_passes"  # the figure of how many passes of a step exchange the same gradients
#: The figure that says by how much compute is slower for collectives beside it, a step.
SLOWER_BESIDE = "slower_beside_collectives"
#: The figure that says how many times the others' even the quickest of a rank's products take in each step.
AT_LEAST = "times_as_long_at_least"
#: The figure that says how many times the others' a rank's launches take that collectives run beside, where its cost is
#: of those, too: `ms` a step, and `others_ms`.
TIMES_BESIDE = "times_as_long_beside_collectives"
OTHER_KERNELS = "other_kernels"  # the same of a rank's kernels where the others run other ones for the same operators
BUS = "bus_gb_s"  # the figure that says how fast data move, and which share that is of what they could
#: A cost whose interval begins below this reads as 0.00 ms.
_ZERO_MS = 0.005


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


def ranks_of(finding: Finding) -> tuple[int, ...]:
    """Return the ranks that a finding names; none where it is nobody's alone."""
    return finding.ranks or (() if finding.rank is None else (finding.rank,))


def evened_out(finding: Finding) -> Finding | None:
    """Return what comes of it where the other ranks take over what a finding's ranks have more of: these become longer,
    and of n ranks of which one has more (n-1)/n of the cost comes back. None where its remedy spreads nothing.
    """
    remedy, ms, own = finding.remedy, finding.ms, len(ranks_of(finding))
    if remedy is None or remedy.cure not in EVENS_OUT or not remedy.size or ms is None or not 0 < own < remedy.size:
        return None
    share = 1 - own / remedy.size
    low, high, part = (
        None if one is None else share * one for one in (finding.low_ms, finding.high_ms, finding.fraction)
    )
    return structs.replace(finding, ms=share * ms, low_ms=low, high_ms=high, fraction=part)


def has_upper_end(finding: Finding) -> bool:
    """Tell whether of a cost of which the least is told the most is known, too, and not for being all of the step: what
    needless exchanges can take is counted.
    """
    counted = finding.at_least and any(row.name == PASSES for row in finding.evidence)
    return counted and (finding.high_ms or 0.0) > (finding.ms or 0.0) > 0


def is_no_fault(finding: Finding) -> bool:
    """Tell whether a transfer is what the job sends, for all that its steps tell: no fault is found in it."""
    return finding.remedy is None or finding.remedy.cure in ("send_less", "record_sizes")


def is_of_all_alike(finding: Finding) -> bool:
    """Tell whether it is what the job is, all its ranks alike, and what would make it quicker is no fault of any."""
    return finding.code == "unfused_optimizer" or is_all_of_it(finding)


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


def is_known(finding: Finding) -> bool:
    """Tell whether a cause is known to be there of which its trace tells but what that costs at least."""
    if any(row.name == CORES_BY_TURNS for row in finding.evidence):
        return True
    return finding.remedy is not None and finding.remedy.cure == "fewer_threads"


def is_certain(finding: Finding) -> bool:
    """Tell whether the cause is there for sure, whatever it costs: what a rank is given is no matter of its machine."""
    return is_counted(finding.evidence)


def is_counted(evidence: Sequence[EvidenceRow]) -> bool:
    """Tell whether evidence says what a rank does in each step beyond the others, or otherwise, or what all do."""
    counted = (INPUTS, BESIDES, WAITS_BESIDES, AT_LEAST, LOCK_WAITS, BUS, PASSES, OTHER_KERNELS)
    return any(row.name in counted for row in evidence)


def is_interrupted_everywhere(finding: Finding) -> bool:
    """Tell whether a finding is of all hosts, that stand still where somebody else has their cores."""
    cure = finding.remedy.cure if finding.remedy is not None else None
    return finding.code == "host_starved" and not ranks_of(finding) and cure == "free_cores"


def is_by_turns(evidence: Sequence[EvidenceRow]) -> bool:
    """Tell whether evidence says that another process has a rank's device, or its cores, by turns."""
    return any(row.name == BY_TURNS for row in evidence)


def is_now_and_then(finding: Finding) -> bool:
    """Tell whether a cause is there in some of the steps alone, by its evidence."""
    return any(row.name == IN_STEPS for row in finding.evidence)


def is_of_one_step(finding: Finding) -> bool:
    """Tell whether a cause is known of one step alone, of which nobody can tell what is usual."""
    return any(row.name == IN_STEPS and row.value == 1 for row in finding.evidence)


def is_once(finding: Finding, many: int = 5) -> bool:
    """Tell whether a cause is there in one of many steps: it may be the only such one in thousands."""
    return any(row.name == IN_STEPS and row.calls == 1 and (row.value or 0) >= many for row in finding.evidence)


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
