"""The collectives sweep, typed. The defaults are in conf/sweep.yaml alone; torch-free."""

from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from scalescope.launch.bounds import COUNT, COUNT_OR_NONE, POSITIVE, SECONDS, check_numbers
from scalescope.launch.config import JobConfig
from scalescope.launch.keys import key
from scalescope.records.errors import UserError


@dataclass
class AutoSizes:
    """The sizes that `sizes: auto` stands for, by kind of device."""

    gpu: str = MISSING
    cpu: str = MISSING


@dataclass
class SweepConfig(JobConfig):
    """conf/sweep.yaml: every combination of these axes is one planned point, and ends as exactly one row."""

    operations: list[str] = MISSING
    sizes: Any = MISSING  # auto | "8B..1GiB x2" | a list of sizes
    auto_sizes: AutoSizes = MISSING
    dtypes: list[str] = MISSING
    group_sizes: Any = MISSING  # all (powers of two, and the whole world) | a list
    reductions: list[str] = MISSING
    modes: Any = MISSING  # auto (as training calls the operation) | in_place | out_of_place | a list
    execution: Any = MISSING  # eager | graph (captured once, launched again) | a list
    transport: Any = key(formerly="path")  # c10d (torch.distributed) | direct (the library itself) | mpi | a list
    memory: str = MISSING  # auto (library for transport=direct) | torch (its allocator) | library (ncclMemAlloc)
    placement: Any = MISSING  # packed (one host after another) | spread (round the hosts) | pairs (every two) | a list
    algorithm: Any = MISSING  # null (the library chooses) | Ring | Tree | NVLS | … as in NCCL_ALGO | a list
    protocol: Any = MISSING  # null (the library chooses) | Simple | LL | LL128 | a list
    channels: Any = MISSING  # null (the library chooses) | how many blocks (CTAs) a communicator uses | a list
    contention: Any = MISSING  # null (the collective alone) | matmul (beside a matrix product) | a list
    warmup_iterations: int = MISSING  # before the first and the largest size of a series
    min_iterations: int = MISSING
    max_iterations: int = MISSING
    budget_s: float = MISSING  # a point's measuring time at most
    relative_interval: float = MISSING  # stop when the 95% interval of the mean is within this share of it
    percentile_iterations: int = MISSING  # operations timed one by one for min, max and percentiles; 0 = none
    clock: str = MISSING  # auto | device (events on the stream) | host (as nccl-tests)
    check: bool = MISSING  # compare every element of one separate operation
    hang_limit_s: float = MISSING  # an operation that takes longer ends the job, and says who did not arrive
    csv: str | None = key(resumable=True)  # a file for the same rows as a table, written at the end

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(
            self,
            warmup_iterations=COUNT_OR_NONE,
            min_iterations=COUNT,
            max_iterations=COUNT,
            budget_s=SECONDS,
            relative_interval=POSITIVE,
            percentile_iterations=COUNT_OR_NONE,
            hang_limit_s=SECONDS,
        )
        if self.min_iterations > self.max_iterations:
            raise UserError(f"min_iterations={self.min_iterations} is above max_iterations={self.max_iterations}; "
                            "lower it, or raise the other")  # fmt: skip

    @property
    def what(self) -> str:
        return self.operations[0] if len(self.operations) == 1 else "collectives"


def register() -> None:
    """Make the type known to Hydra."""
    ConfigStore.instance().store(name="sweep_schema", node=SweepConfig)
