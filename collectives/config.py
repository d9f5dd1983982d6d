"""The collectives sweep, typed. The defaults are in conf/sweep.yaml alone; torch-free."""

from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from launch.config import JobConfig


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
    modes: list[str] = MISSING  # in_place | out_of_place
    warmup_iterations: int = MISSING
    min_iterations: int = MISSING
    max_iterations: int = MISSING
    budget_s: float = MISSING  # a point's time at most
    precision: float = MISSING  # stop when the 95% interval of the mean is within this share of it
    check: bool = MISSING  # compare every element of one separate operation

    @property
    def what(self) -> str:
        return self.operations[0] if len(self.operations) == 1 else "collectives"


def register() -> None:
    """Make the type known to Hydra."""
    ConfigStore.instance().store(name="sweep_schema", node=SweepConfig)
