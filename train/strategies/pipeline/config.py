"""Pipeline parallelism as far as it takes no torch."""

from dataclasses import dataclass
from typing import ClassVar

from scalescope.launch.bounds import COUNT, check_numbers
from scalescope.launch.config import Sent
from scalescope.launch.keys import key
from scalescope.train.models.config import ModelConfig
from scalescope.train.settings import choose
from scalescope.train.strategies.config import State, StrategyConfig

#: By schedule: how many stages a rank has.
STAGES_PER_RANK = {"gpipe": 1, "1f1b": 1, "interleaved": 2}


@dataclass
class PipelineConfig(StrategyConfig):
    """Every rank has a stage of the layers, and micro-batches pass from one to the next (GPipe, Huang et al. 2019;
    1F1B, Narayanan et al. 2019; interleaved, Narayanan et al. 2021)."""

    own_kind: ClassVar[str] = "pipeline"
    implementation: ClassVar[str] = "scalescope.train.strategies.pipeline.strategy:PipelineParallel"
    resumes_on_other_ranks: ClassVar[bool] = False

    schedule: str = key()
    microbatches: int = key()

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("strategy.schedule", self.schedule, tuple(STAGES_PER_RANK))
        check_numbers(self, "strategy.", microbatches=COUNT)

    @property
    def label(self) -> str:
        return f"{self.kind}-{self.schedule}"

    @property
    def slices(self) -> tuple[State, ...]:
        return tuple(State)

    def ranks_per_replica(self, ranks: int) -> int:
        return ranks

    def world_obstacle(self, model: ModelConfig, ranks: int, samples: int) -> str | None:
        if samples % self.microbatches:
            return f"strategy.microbatches={self.microbatches} does not divide the step's {samples} samples"
        if self.microbatches < ranks:
            return f"strategy.microbatches={self.microbatches} leaves some of {ranks} stages without work; raise it"
        if self.schedule == "interleaved" and self.microbatches % ranks:
            return (f"strategy.microbatches={self.microbatches}: schedule=interleaved takes them in rounds of "
                    f"{ranks} ranks; choose a multiple")  # fmt: skip
        obstacle = model.stage_obstacle(ranks * STAGES_PER_RANK[self.schedule])
        return f"strategy=pipeline: {obstacle}" if obstacle else None

    def accumulate_obstacle(self) -> str | None:
        return "accumulate above 1 with strategy=pipeline: strategy.microbatches are its parts; leave accumulate=1"

    def sent(self, precision: str) -> Sent:
        return Sent(("send_recv",), ("bfloat16" if precision == "bf16" else "float32",))

    def precision_obstacle(self, precision: str) -> str | None:
        if precision != "fp8":
            return None
        return "precision=fp8 with strategy=pipeline: its stages are not converted; use bf16, ddp or fsdp2"
