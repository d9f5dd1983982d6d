"""The cases: what is injected into whose steps, by the name of the cause that a diagnosis should give. Torch-free."""

from dataclasses import dataclass, field, replace
from typing import Literal

#: Batches by what limits a step: the host's launching; the device, by so little that recording makes it the host;
#: the device by far.
LAUNCH_BOUND, GPU_BOUND, LARGE = "launch_bound", "gpu_bound", "large"
BATCHES = (LAUNCH_BOUND, GPU_BOUND, LARGE)

#: How a step gets its batch: kept on the device; from a DataLoader in the process, or with a worker process; by the
#: user's own code, inside an annotation or without any.
RESIDENT, LOADER, WORKER, FETCH, BARE = "resident", "loader", "worker", "fetch", "bare"


@dataclass(frozen=True)
class Amount:
    """How much is injected into a step: a fixed time, or a share of the undisturbed step, and what may hide behind it.

    Work that the host does while it is ahead of the device costs nothing, nor does what the device does while it waits
    for the host. `beyond` adds the undisturbed job's own slack (host: step − time to launch it; device: step − time the
    device needs; step: all of it), so that the cause does cost about what is asked for.
    """

    ms: float = 0.0
    share: float = 0.0
    beyond: Literal["", "host", "device", "step"] = ""
    of_slack: float = 1.0


@dataclass(frozen=True)
class JobKind:
    """What distinguishes one job of a launch from another."""

    model: Literal["gpt", "conv"] = "gpt"
    strategy: Literal["ddp", "fsdp2"] = "ddp"
    bucket_mb: float | None = None  # DDP's bucket_cap_mb; None: torch's default
    channels: int | None = None  # most channels of the communicator; None: NCCL's choice
    random_weights: bool = False  # draw as much power as training does


@dataclass(frozen=True)
class Recording:
    """The profiler's settings."""

    shapes: bool = False
    stack: bool = False
    host: bool = True  # operators and annotations; False: ProfilerActivity.CUDA alone
    teardown: bool = False  # let go of the device's tracing library after the window (TEARDOWN_CUPTI)


@dataclass(frozen=True)
class Case:
    """One cause in one job: measured untraced beside the same job without it, then traced."""

    name: str
    code: str  # of the cause, in the vocabulary of the findings
    batch: str
    injection: str = ""  # of injections.INJECTIONS; "": nothing is
    ranks: tuple[int, ...] = (1,)  # whom it is injected into; (): all
    amount: Amount = field(default_factory=Amount)
    codes: tuple[str, ...] = ()  # other right answers, where traces cannot tell them apart
    job: JobKind = field(default_factory=JobKind)
    undisturbed: JobKind | None = None  # where the cause is a setting: the job without it
    loading: str = RESIDENT
    broadcast_root: int | None = None  # each step, disturbed or not, broadcasts from this rank after forward
    recording: Recording = field(default_factory=Recording)
    windows: int = 1  # traces to make of it
    pairs: int = 3  # untraced stretches of each kind
    varies: bool = False  # steps differ on purpose: their mean counts, not their median
    on_cpu: bool = False  # makes sense without a GPU
    truth_of: str = ""  # the case of the same launch whose untraced steps count for this one, too

    @property
    def disturbs(self) -> bool:
        """Whether there is a job without the cause to compare with."""
        return bool(self.injection) or self.undisturbed is not None

    @property
    def blamed(self) -> list[int] | None:
        """The ranks that a diagnosis should name; None where it is nobody's fault alone."""
        return list(self.ranks) if self.injection and self.ranks else None

    def folders(self) -> list[str]:
        """The names of the folders, one a window."""
        return [self.name if self.windows == 1 else f"{self.name}.{window:02d}" for window in range(self.windows)]


@dataclass(frozen=True)
class Launch:
    """The cases that are measured by the same processes."""

    name: str
    ranks: int
    seconds: float  # about what it takes on H200s
    cases: tuple[Case, ...]


HOST = Amount(share=0.2, beyond="host")
DEVICE = Amount(share=0.2, beyond="device")
SMALL_BUCKETS = JobKind(bucket_mb=0.5)
ONE_CHANNEL = JobKind(channels=1)
CONV, FSDP, RANDOM = JobKind(model="conv"), JobKind(strategy="fsdp2"), JobKind(random_weights=True)
ALL: tuple[int, ...] = ()
SETTINGS = {
    "shapes": Recording(shapes=True),
    "stack": Recording(stack=True),
    "cuda_only": Recording(host=False),
}


def undisturbed(batch: str, windows: int, suffix: str = "", job: JobKind | None = None) -> Case:
    """Return the job as it is: nothing is wrong with it, unless its host limits it."""
    bound = batch == LAUNCH_BOUND
    name = f"{'host_bound' if bound else 'nothing'}{suffix}"
    return Case(
        name, "host_bound" if bound else "nothing", batch, job=job or JobKind(), windows=windows, pairs=2, on_cpu=True
    )


def both(batch: str) -> list[Case]:
    """Return the causes that make sense whatever limits the step.

    Hosts vary more than devices do, so a job that its hosts limit takes larger causes and more pairs.
    """
    bound = batch == LAUNCH_BOUND
    share, pairs = (0.5, 6) if bound else (0.2, 3)
    host, device = Amount(share=share, beyond="host"), Amount(share=share, beyond="device")
    cases = [
        Case("own_work", "own_work", batch, "device_delay", amount=Amount(ms=4, beyond="device"), on_cpu=True),
        Case("slower_compute_cotenant", "slower_compute", batch, "cotenant", amount=Amount(share=0.3)),
        Case("more_work", "more_work", batch, "more_passes", amount=device, on_cpu=True),
        Case("data_one_loader", "data_loading", batch, "slow_loading", amount=host, loading=LOADER, on_cpu=True),
        Case("data_all_loader", "data_loading", batch, "slow_loading", ALL, host, loading=LOADER, on_cpu=True),
        Case("data_one_fetch", "data_loading", batch, "slow_loading", amount=host, loading=FETCH, on_cpu=True),
        Case("data_one_bare", "data_loading", batch, "slow_loading", amount=host, loading=BARE, codes=("host_stall",)),
        Case("host_stall_front", "host_stall", batch, "stall_before_forward", amount=host, loading=FETCH, on_cpu=True),
        Case("host_stall_backward", "host_stall", batch, "stall_in_backward", amount=host, on_cpu=True),
        Case("host_starved_cores", "host_starved", batch, "shared_core", varies=True),
        Case("host_starved_gil", "host_starved", batch, "busy_thread", amount=Amount(ms=1), varies=True),
        Case("synchronising_norms_all", "synchronising", batch, "norms_read", ALL),
        Case("synchronising_norms_one", "synchronising", batch, "norms_read"),
        Case("copies_all", "copies", batch, "pageable_copy", ALL, host, codes=("synchronising",)),
        Case("small_buckets", "small_buckets", batch, job=SMALL_BUCKETS, undisturbed=JobKind(), on_cpu=True),
        Case("slow_transfer", "slow_transfer", batch, job=ONE_CHANNEL, undisturbed=JobKind()),
        Case("alternating_load", "alternating_load", batch, "delay_in_turns", ALL, device, on_cpu=True),
        Case("allocation", "allocation", batch, "cache_emptied", ALL),
        Case("unsteady", "unsteady", batch, "random_delays", ALL, device, ("alternating_load",), varies=True),
        Case("fsdp2_host_stall", "host_stall", batch, "stall_before_forward", amount=host, job=FSDP),
        Case("conv_host_stall", "host_stall", batch, "stall_in_backward", amount=host, job=CONV),
    ]
    return [replace(case, pairs=pairs) for case in cases]


def with_settings(case: Case) -> list[Case]:
    """Return a case recorded otherwise, once a setting; its truth is the case's own."""
    return [
        replace(case, name=f"{case.name}_{name}", recording=recording, windows=1, truth_of=case.name)
        for name, recording in SETTINGS.items()
    ]


def launch_bound() -> tuple[Case, ...]:
    """Return the cases of a job that its hosts limit."""
    batch = LAUNCH_BOUND
    plain, causes = undisturbed(batch, 6), both(batch)
    by_name = {case.name: case for case in causes}
    return (
        plain,
        *causes,
        Case("host_stall_1_percent", "host_stall", batch, "stall_before_forward",
             amount=Amount(share=0.01, beyond="host"), windows=10, pairs=20),
        undisturbed(batch, 2, "_fsdp2", FSDP),
        undisturbed(batch, 2, "_conv", CONV),
        *with_settings(plain),
        *with_settings(by_name["host_stall_backward"]),
        replace(plain, name="host_bound_teardown", windows=3, recording=Recording(teardown=True), truth_of=plain.name),
    )  # fmt: skip


def gpu_bound() -> tuple[Case, ...]:
    """Return the cases of a job that its devices limit while nobody records."""
    batch = GPU_BOUND
    plain, causes = undisturbed(batch, 8), both(batch)
    by_name = {case.name: case for case in causes}
    return (
        plain,
        *causes,
        Case("own_work_1_percent", "own_work", batch, "device_delay", amount=Amount(share=0.01, beyond="device"),
             windows=10, pairs=8),
        undisturbed(LARGE, 4, "_large"),
        undisturbed(batch, 2, "_random", RANDOM),
        Case("own_work_random", "own_work", batch, "device_delay", amount=DEVICE, job=RANDOM),
        Case("own_work_large", "own_work", LARGE, "device_delay", amount=Amount(share=0.02, beyond="device"), pairs=5),
        Case("host_stall_large", "host_stall", LARGE, "stall_in_backward", amount=HOST),
        Case("own_work_beside", "own_work", batch, "second_stream", amount=DEVICE, codes=("slower_compute",)),
        Case("slower_compute_rows", "slower_compute", batch, "more_rows", amount=Amount(share=0.2),
             codes=("more_work",)),
        Case("data_one_worker", "data_loading", batch, "slow_loading", amount=Amount(share=0.2, beyond="step"),
             loading=WORKER),
        Case("host_stall_hidden", "host_stall", batch, "stall_in_backward", amount=Amount(beyond="host", of_slack=0.5)),
        Case("host_stall_collector", "host_stall", batch, "garbage_collected", amount=HOST),
        Case("host_bound_tiny", "host_bound", batch, "tiny_kernels", ALL, HOST),
        Case("synchronising_item_all", "synchronising", batch, "loss_read", ALL),
        Case("synchronising_device_all", "synchronising", batch, "device_synchronised", ALL),
        Case("copies_one", "copies", batch, "pageable_copy", amount=HOST, codes=("synchronising",)),
        Case("late_root", "late_root", batch, "device_delay", amount=DEVICE, codes=("own_work",), broadcast_root=1),
        Case("late_member", "own_work", batch, "device_delay", amount=DEVICE, broadcast_root=0),
        Case("late_root_stalled", "host_stall", batch, "stall_before_forward", amount=HOST, broadcast_root=1),
        Case("contention", "contention", batch, "collectives_beside", ALL, Amount(share=0.15)),
        Case("late_bucket", "late_bucket", batch, job=JobKind(bucket_mb=4096.0), undisturbed=JobKind()),
        undisturbed(batch, 2, "_fsdp2", FSDP),
        Case("fsdp2_own_work", "own_work", batch, "device_delay", amount=DEVICE, job=FSDP),
        undisturbed(batch, 2, "_conv", CONV),
        Case("conv_own_work", "own_work", batch, "device_delay", amount=DEVICE, job=CONV),
        Case("conv_data_loader", "data_loading", batch, "slow_loading", amount=HOST, job=CONV, loading=LOADER),
        *with_settings(plain),
        *with_settings(by_name["own_work"]),
        Case("recompilation", "recompilation", batch, "new_shapes", ALL, pairs=2, varies=True),
    )  # fmt: skip


def four_ranks() -> tuple[Case, ...]:
    """Return the cases that two ranks cannot show."""
    batch = GPU_BOUND
    return (
        undisturbed(batch, 4),
        Case("one_of_four", "own_work", batch, "device_delay", (2,), Amount(ms=4, beyond="device")),
        Case("two_late", "own_work", batch, "device_delay", (1, 2), DEVICE),
        Case("one_of_four_1_percent", "own_work", batch, "device_delay", (2,), Amount(share=0.01, beyond="device"),
             windows=3, pairs=6),
        Case("one_of_four_stalled", "host_stall", batch, "stall_in_backward", (3,), HOST),
        Case("one_of_four_loading", "data_loading", batch, "slow_loading", (0,), HOST, loading=LOADER),
        Case("late_root_of_four", "late_root", batch, "device_delay", (3,), DEVICE, ("own_work",), broadcast_root=3),
        Case("late_member_of_four", "own_work", batch, "device_delay", (2,), DEVICE, broadcast_root=0),
        Case("in_turns_of_four", "alternating_load", batch, "delay_in_turns", ALL, DEVICE),
        Case("cotenant_of_four", "slower_compute", batch, "cotenant", (1,), Amount(share=0.3)),
    )  # fmt: skip


def smoke() -> tuple[Case, ...]:
    """Return the cases for a machine without GPUs: whether the generator works; its injections are out of all noise.

    What delays a device there is a host that sleeps.
    """
    plain = undisturbed(GPU_BOUND, 1)
    causes = [replace(case, amount=Amount(ms=80), pairs=2) for case in both(GPU_BOUND) if case.on_cpu]
    return (plain, *(replace(case, codes=("host_stall",)) if case.code == "own_work" else case for case in causes))


def launches(gpus: int) -> list[list[Launch]]:
    """Return what to launch on a machine with so many GPUs: one list after another, the launches of a list at once."""
    if gpus < 2:
        return [[Launch("cpu", 2, 70, smoke())]]
    pairs = [Launch("gpu_bound", 2, 200, gpu_bound()), Launch("launch_bound", 2, 150, launch_bound())]
    if gpus < 4:
        return [[launch] for launch in pairs]
    return [pairs, [Launch("four", 4, 60, four_ranks())]]


def all_cases() -> dict[str, Case]:
    """Return every case by `launch/case`."""
    waves = [*launches(4), *launches(0)]
    return {f"{launch.name}/{case.name}": case for wave in waves for launch in wave for case in launch.cases}
