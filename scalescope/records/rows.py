"""The typed rows and documents of a run folder. Units are in the names; GB = 10^9 bytes."""

import statistics
from collections.abc import Sequence
from typing import Literal

import msgspec

from scalescope.records.dtypes import element_bytes
from scalescope.records.operations import OPERATION_FACTS

SCHEMA = 1

RunKind = Literal["train", "sweep", "study", "scorecard"]
RunStatus = Literal["running", "done", "failed", "interrupted", "preempted"]
StepPhase = Literal["warmup", "steady", "profile"]
#: What ended a run that did not come to its end: a rank that died or went silent, a place that was not passed in time,
#: an error, or somebody's wish.
EndedBy = Literal["lost_rank", "hang", "failure", "request"]
#: Who wrote the training loop: one of our jobs, whose keys advice may name, or anybody's own.
Origin = Literal["job", "script"]
SweepStatus = Literal["measured", "out_of_memory", "not_available", "failed"]


class Device(msgspec.Struct, frozen=True):
    """One device of one rank, as the machine describes it. `None` where the device does not tell."""

    rank: int
    host: str
    kind: Literal["cuda", "rocm", "cpu"]
    name: str
    memory_bytes: int | None = None
    compute_units: int | None = None
    pci_bus: str | None = None
    sm_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttled: str | None = None
    memory_clock_mhz: float | None = None
    architecture: str | None = None  # gfx942, sm_90
    partition: int | None = None  # which of its chip's equal partitions it is, where the chip is split
    partitions: int | None = None
    peer_gb_s: dict[str, float] = {}  # one way, to those devices of its host that it is linked with, by their address
    numa_node: int | None = None  # the one it hangs on, where the machine has several
    runs_on_nodes: list[int] | None = None  # those whose cores its rank may run on
    threads: int | None = None  # that an operator of a rank on CPUs computes with
    cores: str | None = None  # those that such a rank may run on, as Linux lists them: 0-3,8

    @property
    def address(self) -> str | None:
        """What tells it from other devices of its host: its PCI address, and a partition's number after a slash."""
        if self.pci_bus is None or self.partition is None:
            return self.pci_bus
        return f"{self.pci_bus}/{self.partition}"


class Versions(msgspec.Struct, frozen=True):
    """What the figures of a run depend on."""

    scalescope: str
    python: str
    torch: str | None = None
    cuda: str | None = None
    hip: str | None = None
    collective_library: str | None = None  # "nccl 2.28.9", "rccl …", "gloo"
    driver: str | None = None


class Environment(msgspec.Struct, frozen=True):
    """An allow-listed capture: never the whole environment, which holds secrets."""

    host: str
    platform: str
    cpu: str
    cpu_cores: int
    versions: Versions
    variables: dict[str, str] = {}


class Ceilings(msgspec.Struct, frozen=True):
    """What this device can do: by its data sheet, and as measured here. `None` where it is not known."""

    peak_tflops: float | None = None  # dense, for the dtype of the run
    peak_dtype: str | None = None
    peak_source: str | None = None
    matmul_tflops: float | None = None  # measured, see scalescope.hardware.ceiling
    matmul_shape: str | None = None
    memory_tb_s: float | None = None
    link_gb_s: float | None = None  # one direction, one device, to its peers in the node
    link_topology: Literal["switch", "mesh", "pcie"] | None = None
    achievable_tflops: float | None = None  # what the vendor itself has reached in matrix products of the dtype
    achievable_source: str | None = None


class RunInfo(msgspec.Struct):
    """run.json: what ran, where, with what result."""

    kind: RunKind
    name: str
    status: RunStatus
    started_unix_s: float
    schema: int = SCHEMA
    ended_unix_s: float | None = None
    study: str | None = None  # the study's name, which is also its W&B group
    attempt: int = 0
    config_hash: str = ""
    backend: str | None = None
    world_size: int | None = None
    hosts: list[str] = []
    launcher: str | None = None  # torchrun | slurm | mpi | env | single
    launch: str | None = None  # which start of torchrun, whose restarts go on in the same folder
    environment: Environment | None = None
    devices: list[Device] = []
    topology: str | None = None  # the hosts, and how the devices of the first are linked
    ceilings: Ceilings | None = None
    message: str | None = None  # why it ended as it did, where that is not plain
    ended_by: EndedBy | None = None  # of a run that did not come to its end; None also of runs before this was kept


class TrainFacts(msgspec.Struct, frozen=True):
    """What a training job is, in numbers that do not change from step to step: facts.json of a train run."""

    model: str
    strategy: str
    precision: str | None  # None: a script did not tell, and none is guessed; so of `parameters`
    parameters: int | None
    flops_per_sample: float
    flops_formula: str
    samples_per_rank_step: int  # rounded where ranks differ
    tokens_per_sample: int | None = None
    compiled: bool = False
    compiled_by_bucket: bool | None = None  # a graph a gradient bucket, or one; None: not compiled, not DDP, not noted
    attention: str | None = None  # torch's attention kernel: flash | cudnn | efficient | math
    hardware_flops_per_sample: float | None = None  # with what is computed again
    hardware_flops_formula: str | None = None
    origin: Origin | None = None  # None: not known
    dataset: str | None = None  # the kind of a job's data: synthetic | tokens | image_folder
    mlperf_benchmark: str | None = None  # which of MLPerf Training's it is; None: none of them
    ranks_per_replica: int = 1  # ranks that work on the same samples: a tensor-parallel group's, a pipeline's
    counts_batches: bool = False  # nobody told how many samples a rank's batch has: it counts as one
    samples_by_rank: tuple[int, ...] = ()  # where ranks differ, as a script told

    @property
    def job(self) -> tuple[str, ...]:
        """What tells one job from another, whatever its rank count, in words: the model first.

        How a compiled graph is cut is not part of it: on one rank it is not by default, on several it is.
        """
        return (
            self.model,
            self.strategy,
            self.precision or "",
            "compiled" if self.compiled else "eager",
            # a model of one name may be built in several sizes
            f"{(self.parameters or 0) / 1e6:.4g}M parameters",
            f"{self.flops_per_sample / 1e9:.4g} GFLOP a sample",
        )


class TriedRow(msgspec.Struct, frozen=True):
    """Advice that a study followed in one more run: what it was expected to bring, ms a step (positive: gained)."""

    base: str  # the run that the advice was for, by folder name
    run: str
    what: str
    overrides: list[str]
    expected_ms: float
    expected_low_ms: float
    expected_high_ms: float
    at_most: bool = False
    at_least: bool = False


class JobRow(msgspec.Struct, frozen=True):
    """One job of a study, as jobs.jsonl keeps it from the study's begin on: what it takes to go on with the study."""

    verb: str  # train | sweep
    name: str
    ranks: int
    overrides: list[str]


class StepRow(msgspec.Struct, frozen=True):
    """One training step. `step_ms` holds every rank's time, by rank; see `length_ms` for the step's own."""

    step: int
    phase: StepPhase
    step_ms: list[float]
    samples_per_s: float
    tokens_per_s: float | None = None
    loss: float | None = None
    validation_loss: float | None = None  # on held-out data: before step 0's update, after any other's
    mfu: float | None = None  # over the data-sheet peak; see TrainFacts.flops_formula
    mfu_of_measured: float | None = None  # over the measured matmul ceiling
    memory_peak_bytes: int | None = None
    attempt: int = 0
    unix_s: float | None = None
    hfu: float | None = None  # as mfu, with what is computed again; see TrainFacts.hardware_flops_formula
    hfu_of_measured: float | None = None
    joules_per_sample: float | None = None  # of all devices, by their own counters
    synchronised: bool = True  # a step waits for all ranks; otherwise each goes on by itself
    own_ms: list[float] = []  # every rank's time until it first waits for the others, by rank; empty: not marked
    run_delay_ms: list[float] = []  # of step_ms, by rank, ready to run while others had its core; empty: nothing tells
    loading_ms: list[float] = []  # how long every rank's host was in its loader, by rank; empty: not timed
    own_run_delay_ms: list[float] = []  # as run_delay_ms, of own_ms
    saving_ms: list[float] = []  # how long every rank's loop saved a checkpoint before this step; empty: it did not
    validating_ms: list[float] = []  # how long it measured the held-out loss before this step; empty: it did not
    job_step_ms: float | None = (
        None  # from the last rank's end of the step before to the last one's of this; see JobSteps
    )
    on_cpu_ms: list[float] = []  # of step_ms, by rank, its loop's thread had a core; empty: nothing tells
    #: How many worker processes every rank's loaders, entered anew in this step, started; empty: not all were, or told.
    workers_started: list[int] = []

    @property
    def loop_ms(self) -> list[float]:
        """Return every rank's time since the step before ended: with what its loop saved and validated in between."""
        held = [one for one in (self.saving_ms, self.validating_ms) if len(one) == len(self.step_ms)]
        return [ms + sum(one[rank] for one in held) for rank, ms in enumerate(self.step_ms)] if held else self.step_ms

    @property
    def length_ms(self) -> float:
        """Return how long the job's step is; of a row that does not tell, how long its slowest rank's.

        Raises ValueError where no rank told its time.
        """
        return self.job_step_ms if self.job_step_ms is not None else step_length_ms(self.step_ms, self.synchronised)


def step_length_ms(step_ms: Sequence[float], synchronised: bool) -> float:
    """Return how long a step of ranks with these times is.

    Where they wait for one another, it is as long as the slowest's. Where nobody waits for anybody, there is no such
    step: their throughputs add up, and the step that has as much is as long as the harmonic mean. Raises ValueError
    (StatisticsError is one) where there is no time.
    """
    return max(step_ms) if synchronised else statistics.harmonic_mean(step_ms)


#: Half of a 95% interval, as a share of the time, from which on a point says so.
WIDE = 0.1
#: What is said of both where rows are printed.
READ_HALF = "±: how far off the time may be (95% interval)"
READ_WIDE = f"wide: by more than {WIDE:.0%}, too much to compare it"


class SweepRow(msgspec.Struct, frozen=True):
    """One planned point of a collectives sweep: measured, or with the reason why it was not.

    `bytes` is S, the largest send or receive buffer of any rank; busbw follows nccl-tests.
    """

    operation: str
    bytes: int
    dtype: str
    group_size: int
    status: SweepStatus
    reason: str | None = None
    reduction: str | None = None
    mode: str = "in_place"  # in_place | out_of_place
    execution: str = "eager"  # eager | graph
    transport: str = "c10d"  # c10d | direct | mpi | xla
    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None  # blocks a communicator was told to use
    cta_policy: str | None = None  # that it was told, over symmetric windows: default | efficiency | zero
    memory: str | None = None  # whose allocator the buffers are from: torch | library | xla
    issued_by: str | None = None  # the loop that enqueues eager operations: c | python
    compiled_with: str | None = None  # the compiler and its options, where operations are parts of compiled programs
    dispatch_us: float | None = None  # what a program of one operation takes longer than the operation in a long one
    library_chose: str | None = None  # "algorithm/protocol" from the library's own log
    library_channels: int | None = None  # blocks that it used, from the same
    contention: str | None = None  # what ran on the device meanwhile: matmul
    slowdown: float | None = None  # the collective's time with contention over its time alone
    compute_slowdown: float | None = None  # the matrix product's time beside the collective over its time alone
    placement: str | None = None
    root: int | None = None
    ranks: list[int] = []
    time_us: float | None = None  # an operation's share of a batch that ran back to back, averaged over the ranks
    time_each_us: float | None = None  # the mean where each operation is timed by itself; so are the next five
    time_min_us: float | None = None
    time_max_us: float | None = None
    time_p50_us: float | None = None
    time_p95_us: float | None = None
    time_p99_us: float | None = None
    interval_us: tuple[float, float] | None = None  # 95% interval of the mean
    stopped_by: str | None = None  # precision | budget
    slowest_rank: int | None = None
    alg_gb_s: float | None = None
    bus_gb_s: float | None = None
    ceiling_gb_s: float | None = None
    ceiling_assumes: str | None = None
    iterations: int = 0
    stalls: int = 0  # batches left out of the mean, since the host was held up in them
    wrong: int | None = None  # elements that differ from the expected result; None = not checked
    backend: str | None = None
    source: str = "scalescope"
    attempt: int = 0
    unix_s: float | None = None  # when it was written

    @property
    def count(self) -> int | None:
        """nccl-tests' `count` of elements: of one rank's part where an operation is sharded, else of the buffer.

        None where the data type's size is not known.
        """
        width = element_bytes(self.dtype)
        facts = OPERATION_FACTS.get(self.operation)
        if width is None:
            return None
        count = self.bytes // width
        return count // self.group_size if facts is not None and facts.sharded else count

    @property
    def relative_half(self) -> float | None:
        """Half of the 95% interval as a share of the time; None where it was measured without one."""
        if self.interval_us is None or not self.time_us:
            return None
        return (self.interval_us[1] - self.interval_us[0]) / 2 / self.time_us

    @property
    def is_wide(self) -> bool:
        """Whether the time is known no better than to WIDE."""
        return self.relative_half is not None and self.relative_half > WIDE


#: Keys that rows had in files of earlier versions, by row type.
FORMER_KEYS: dict[type[msgspec.Struct], dict[bytes, bytes]] = {SweepRow: {b'"path":': b'"transport":'}}
