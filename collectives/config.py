"""The collectives sweep, typed. The defaults are in conf/sweep.yaml alone; torch-free."""

from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore

from scalescope.launch.bounds import COUNT, COUNT_OR_NONE, POSITIVE, SECONDS, check_numbers
from scalescope.launch.config import JobConfig
from scalescope.launch.keys import key
from scalescope.records.errors import UserError


@dataclass
class AutoSizes:
    """The sizes that `sizes: auto` stands for, by kind of device."""

    gpu: str = key()
    cpu: str = key()


@dataclass
class SweepConfig(JobConfig):
    """conf/sweep.yaml: every combination of these axes is one planned point, and ends as exactly one row."""

    operations: list[str] = key()
    sizes: Any = key()
    auto_sizes: AutoSizes = key()
    dtypes: list[str] = key()
    group_sizes: Any = key()
    reductions: list[str] = key()
    modes: Any = key()
    execution: Any = key()
    transport: Any = key(formerly="path")
    memory: str = key()
    placement: Any = key()
    algorithm: Any = key()
    protocol: Any = key()
    channels: Any = key()
    cta_policy: Any = key(added_as=None)
    contention: Any = key()
    warmup_iterations: int = key()
    min_iterations: int = key()
    max_iterations: int = key()
    budget_s: float = key()
    relative_interval: float = key()
    percentile_iterations: int = key()
    clock: str = key()
    check: bool = key()
    hang_limit_s: float = key()
    launches: int = key(added_as=1)
    csv: str | None = key(resumable=True)

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
            launches=COUNT,
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
