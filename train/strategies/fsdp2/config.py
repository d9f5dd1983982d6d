"""FSDP2 as far as it takes no torch."""

from dataclasses import dataclass
from typing import ClassVar

from scalescope.launch.bounds import COUNT_OR_NONE, check_numbers
from scalescope.launch.config import Sent
from scalescope.launch.keys import key
from scalescope.records.operations import CTA_POLICIES
from scalescope.train.settings import choose
from scalescope.train.strategies.config import State, StrategyConfig


@dataclass
class Fsdp2Config(StrategyConfig):
    """Every rank holds a slice of each parameter, gradient and optimiser state, and gathers block by block."""

    own_kind: ClassVar[str] = "fsdp2"
    implementation: ClassVar[str] = "scalescope.train.strategies.fsdp2.strategy:Fsdp2"
    lighter: ClassVar[dict[str, tuple[State, ...]]] = {"fsdp2": tuple(State)}

    reshard_after_forward: bool = key()
    prefetch: int = key()
    cta_policy: str | None = key(added_as=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "strategy.", prefetch=COUNT_OR_NONE)
        if self.cta_policy is not None:
            choose("strategy.cta_policy", self.cta_policy, CTA_POLICIES)

    @property
    def label(self) -> str:
        return self.kind if self.cta_policy is None else f"{self.kind}-cta-{self.cta_policy}"

    @property
    def slices(self) -> tuple[State, ...]:
        return tuple(State)

    def sent(self, precision: str) -> Sent:
        """bf16 parameters are gathered, not reduced: any dtype stands for them."""
        return Sent(("all_gather", "reduce_scatter"), ("float32",))

    def device_obstacle(self, device: str) -> str | None:
        if self.cta_policy is None or device != "cpu":
            return None
        return (f"strategy.cta_policy={self.cta_policy} is told to NCCL, which CPUs do not have; "
                "leave it out, or take GPUs")  # fmt: skip
