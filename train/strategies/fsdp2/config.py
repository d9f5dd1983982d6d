"""FSDP2 as far as it takes no torch."""

from dataclasses import dataclass
from typing import ClassVar

from scalescope.launch.bounds import COUNT_OR_NONE, check_numbers
from scalescope.launch.config import Sent
from scalescope.launch.keys import key
from scalescope.train.strategies.config import State, StrategyConfig


@dataclass
class Fsdp2Config(StrategyConfig):
    """Every rank holds a slice of each parameter, gradient and optimiser state, and gathers block by block."""

    own_kind: ClassVar[str] = "fsdp2"
    implementation: ClassVar[str] = "scalescope.train.strategies.fsdp2.strategy:Fsdp2"
    lighter: ClassVar[dict[str, tuple[State, ...]]] = {"fsdp2": tuple(State)}

    reshard_after_forward: bool = key()
    prefetch: int = key()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "strategy.", prefetch=COUNT_OR_NONE)

    @property
    def slices(self) -> tuple[State, ...]:
        return tuple(State)

    def sent(self, precision: str) -> Sent:
        """bf16 parameters are gathered, not reduced: any dtype stands for them."""
        return Sent(("all_gather", "reduce_scatter"), ("float32",))
