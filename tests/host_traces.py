"""Made-up traces of one rank's host and device, written call by call as a training loop would make them.

The host has a loop's thread and autograd's; the device one stream, on which kernels run in the order of their launches,
each when it has been launched and the one before it is over. Times are µs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scalescope.scaling.evidence.compare import compare_hosts
from scalescope.scaling.evidence.host_cause import HostCause
from scalescope.scaling.evidence.host_evidence import HostEvidence
from scalescope.scaling.ranks.read import read_ranks
from scalescope.scaling.trace.sources import find_sources
from tests.trace_json import packed

Json = dict[str, Any]

LOOP, BACKWARD = 101, 102
STEPS = 5
KERNEL_US = 40.0
BASE_NS = 1_790_857_026_000_000_000


class HostTrace:
    """Grows a trace along the host's clock. `slow`: so many times as long everything takes that the host does."""

    def __init__(self, rank: int = 0, world_size: int = 1, slow: float = 1.0, hip: bool = False) -> None:
        self.device = "Made-up device"
        self.rank, self.world_size, self.slow = rank, world_size, slow
        self.library = "hip" if hip else "cuda"
        self.events: list[Json] = []
        self.clock, self.thread = 1_000.0, LOOP
        self.device_free, self.correlation = 0.0, 0
        self.collections: list[Json] = []

    def event(self, category: str, name: str, start: float, end: float, tid: int, pid: int = 1, **args: Any) -> None:
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": round(start, 3),
                            "dur": round(end - start, 3), "args": args})  # fmt: skip

    def idle(self, us: float) -> None:
        """Nothing is recorded for so long."""
        self.clock += us

    def collects(self, us: float) -> None:
        """Python collects its garbage for so long, which the header alone says."""
        start = BASE_NS + round(1e3 * self.clock)
        self.clock += us
        self.collections.append(
            {"start_ns": start, "end_ns": start + round(1e3 * us), "generation": 2, "thread": self.thread}
        )

    def python(self, us: float = 6.0) -> None:
        """What Python takes between two operators."""
        self.clock += us * self.slow

    @contextmanager
    def inside(self, category: str, name: str) -> Iterator[None]:
        """An operator (`cpu_op`) or annotation (`user_annotation`) around what follows."""
        start, thread = self.clock, self.thread
        self.python(2.0)
        yield
        self.python(2.0)
        self.event(category, name, start, self.clock, thread)

    def call(self, name: str, us: float = 4.0) -> int:
        """Make a runtime call, `name` without its library; return its correlation."""
        self.correlation += 1
        start, self.clock = self.clock, self.clock + us * self.slow
        self.event("cuda_runtime", self.library + name, start, self.clock, self.thread, correlation=self.correlation)
        return self.correlation

    def kernel(self, operator: str, us: float, name: str = "gemm", category: str = "kernel") -> None:
        """Run an operator that launches one activity of so many µs."""
        with self.inside("cpu_op", operator):
            start = self.clock
            number = self.call("LaunchKernel" if category == "kernel" else "MemcpyAsync")
            self.on_device(name, category, max(start + 3.0, self.device_free), us, number)
        self.python()

    def on_device(self, name: str, category: str, begin: float, us: float, number: int) -> None:
        self.device_free = begin + us
        self.event(category, name, begin, self.device_free, 7, self.rank, correlation=number, stream=7,
                   device=self.rank)  # fmt: skip

    def synchronise(self, call: str = "StreamSynchronize") -> None:
        """Wait until the device has done all it was given."""
        self.correlation += 1
        start = self.clock
        self.clock = max(self.clock + 2.0, self.device_free + 5.0)
        self.event("cuda_runtime", self.library + call, start, self.clock, self.thread, correlation=self.correlation)

    def queue_full(self, us: float) -> None:
        """Launch while about 1,000 launches are outstanding: it waits, which CUPTI counts as its own overhead."""
        start = self.clock
        self.call("LaunchKernel", us)
        self.event("overhead", "Command Buffer Full", start + 1, self.clock - 1, 0, -1)

    def recorded(self, us: float) -> None:
        """The profiler asks for a buffer, and the host stands still."""
        self.event("overhead", "Activity Buffer Request", self.clock + 1, self.clock + us - 1, 0, -1)
        self.clock += us

    def item(self) -> None:
        """Read a scalar, as `.item()` does: a copy, and a wait for it."""
        with self.inside("cpu_op", "aten::item"), self.inside("cpu_op", "aten::_local_scalar_dense"):
            number = self.call("MemcpyAsync")
            self.on_device("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", max(self.clock, self.device_free), 1.0,
                            number)  # fmt: skip
            self.synchronise()
        self.python()

    @contextmanager
    def backward(self) -> Iterator[None]:
        """What follows runs on autograd's thread."""
        self.thread = BACKWARD
        yield
        self.thread = LOOP

    def node(self, name: str, us: float) -> None:
        """Run a node of the backward pass that launches one kernel."""
        with self.inside("cpu_op", f"autograd::engine::evaluate_function: {name}"), self.inside("cpu_op", name):
            self.kernel("aten::mm", us)

    def steps(self, count: int, step: Callable[["HostTrace", int], None]) -> "HostTrace":
        """Run steps, each in its ProfilerStep."""
        for number in range(count):
            with self.inside("user_annotation", f"ProfilerStep#{number + 3}"):
                step(self, number)
            self.idle(15.0)
        return self

    def json(self) -> Json:
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": self.rank, "name": self.device}],
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": self.world_size},
            "baseTimeNanoseconds": BASE_NS,
            **({"scalescope": {"collections": self.collections}} if self.collections else {}),
            "traceEvents": self.events,
        }

    def write(self, folder: Path) -> Path:
        """Write rank<r>.json.gz and return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"rank{self.rank}.json.gz"
        path.write_bytes(packed(self.json()))
        return path


def forward(trace: HostTrace, kernel_us: float, layers: int = 20) -> None:
    """A forward pass of linear layers."""
    with trace.inside("user_annotation", "DistributedDataParallel.forward"):
        for _ in range(layers):
            trace.kernel("aten::addmm", kernel_us)
            trace.kernel("aten::relu", kernel_us / 4)


def backward(trace: HostTrace, kernel_us: float, layers: int = 20, at_middle: Callable[[], None] | None = None) -> None:
    """The backward pass of the same."""
    with trace.backward():
        for layer in range(layers):
            trace.node("AddmmBackward0", 2 * kernel_us)
            if layer == layers // 2 and at_middle is not None:
                at_middle()


def optimise(trace: HostTrace) -> None:
    """The optimizer's step."""
    with trace.inside("user_annotation", "Optimizer.step#AdamW.step"):
        for _ in range(4):
            trace.kernel("aten::_fused_adamw_", 20.0)


def plain_step(trace: HostTrace, kernel_us: float) -> None:
    """A step in which nothing is wrong."""
    forward(trace, kernel_us)
    backward(trace, kernel_us)
    optimise(trace)


Step = Callable[[HostTrace, int], None]


def undisturbed(trace: HostTrace, number: int) -> None:
    plain_step(trace, KERNEL_US)


def evidence_of(folder: Path) -> dict[int, HostEvidence]:
    summaries = read_ranks(find_sources(folder)).summaries
    return {rank: one.host_evidence for rank, one in summaries.items() if one.host_evidence is not None}


def causes_of(folder: Path, *steps: Step, slow: tuple[float, ...] = (), hip: bool = False) -> list[HostCause]:
    """Return what is found where each rank runs its own kind of step."""
    for rank, step in enumerate(steps):
        HostTrace(rank, len(steps), slow[rank] if slow else 1.0, hip).steps(STEPS, step).write(folder)
    return compare_hosts(evidence_of(folder))
