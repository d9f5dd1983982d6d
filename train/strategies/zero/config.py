"""DeepSpeed ZeRO as far as it takes no torch."""

from dataclasses import dataclass
from typing import ClassVar

from scalescope.launch.bounds import MEBIBYTES, check_numbers
from scalescope.launch.config import Sent
from scalescope.launch.keys import key
from scalescope.records.errors import UserError
from scalescope.train.strategies.config import State, StrategyConfig

_SLICED = (State.OPTIMIZER, State.GRADIENT, State.WEIGHT)  # by stage: the first, the first two, all


@dataclass
class ZeroConfig(StrategyConfig):
    """Optimiser state (stage 1), gradients too (2), parameters too (3) in slices over the ranks."""

    own_kind: ClassVar[str] = "zero"
    implementation: ClassVar[str] = "scalescope.train.strategies.zero.strategy:Zero"
    saves_itself: ClassVar[str | None] = "DeepSpeed"
    lighter: ClassVar[dict[str, tuple[State, ...]]] = {"zero1": _SLICED[:1]}

    bucket_mib: float = key(formerly="bucket_mb")
    stage: int = key()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stage not in (1, 2, 3):
            raise UserError(f"strategy.stage={self.stage}: ZeRO has the stages 1, 2 and 3")
        check_numbers(self, "strategy.", bucket_mib=MEBIBYTES)

    @property
    def slices(self) -> tuple[State, ...]:
        return _SLICED[: self.stage]

    def sent(self, precision: str) -> Sent:
        """In bf16, parameters that autocast leaves in fp32 travel as they are, and the others in bf16."""
        operations = ("all_gather", "reduce_scatter") if self.stage == 3 else ("all_reduce", "all_gather")
        return Sent(operations, ("float32", "bfloat16") if precision == "bf16" else ("float32",))

    def compile_obstacle(self) -> str | None:
        return ("compile=true with strategy=zero: DeepSpeed's hooks cannot be compiled; use ddp or fsdp2, or "
                "compile=false")  # fmt: skip

    def precision_obstacle(self, precision: str) -> str | None:
        if precision != "fp8":
            return None
        return "precision=fp8 with strategy=zero: DeepSpeed casts the weights itself; use ddp, fsdp2 or local"
