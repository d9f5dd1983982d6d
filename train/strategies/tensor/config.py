"""Tensor parallelism as far as it takes no torch."""

from dataclasses import dataclass
from typing import ClassVar

from scalescope.launch.bounds import COUNT, check_numbers
from scalescope.launch.config import Sent
from scalescope.launch.keys import key
from scalescope.train.models.config import ModelConfig
from scalescope.train.strategies.config import State, StrategyConfig


@dataclass
class TensorConfig(StrategyConfig):
    """Ranks compute each layer together, a slice each (Shoeybi et al. 2019); of several such groups, FSDP2 between."""

    own_kind: ClassVar[str] = "tensor"
    implementation: ClassVar[str] = "scalescope.train.strategies.tensor.strategy:TensorParallel"
    # parameters lie in another order where ranks share a layer, and the optimiser has other groups of them
    resumes_on_other_ranks: ClassVar[bool] = False

    degree: int | None = key()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "strategy.", degree=COUNT.or_null("for all ranks"))

    @property
    def label(self) -> str:
        return self.kind if self.degree is None else f"{self.kind}{self.degree}"

    @property
    def slices(self) -> tuple[State, ...]:
        return tuple(State)

    def ranks_per_replica(self, ranks: int) -> int:
        return self.degree or ranks

    def world_obstacle(self, model: ModelConfig, ranks: int, samples: int) -> str | None:
        degree = self.ranks_per_replica(ranks)
        if ranks % degree:
            return f"strategy.degree={degree} does not divide {ranks} ranks; choose a divisor, or null for all of them"
        obstacle = model.slice_obstacle(degree)
        return f"strategy=tensor: {obstacle}" if obstacle else None

    def sent(self, precision: str) -> Sent:
        """Activations, in what is multiplied; between groups gradients and parameters as FSDP2 has them."""
        dtype = "bfloat16" if precision == "bf16" else "float32"
        if self.degree is None:
            return Sent(("all_reduce",), (dtype,))
        return Sent(("all_reduce", "all_gather", "reduce_scatter"), tuple(dict.fromkeys((dtype, "float32"))))

    def precision_obstacle(self, precision: str) -> str | None:
        if precision != "fp8":
            return None
        return "precision=fp8 with strategy=tensor: its layers' slices are not converted; use bf16, ddp or fsdp2"
