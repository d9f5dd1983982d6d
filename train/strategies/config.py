"""What every strategy says of itself without torch: its keys, what it sends and slices, what does not go with it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from scalescope.launch.config import Sent
from scalescope.launch.keys import Variant
from scalescope.train.models.config import ModelConfig


class State(Enum):
    """What a rank keeps of each parameter, beside what a step leaves behind."""

    OPTIMIZER = "optimiser state"
    GRADIENT = "gradients"
    WEIGHT = "weights"


@dataclass
class StrategyConfig(Variant, ABC):
    """conf/strategy: how the ranks share the work. Each strategy's own class has its keys, and answers what the rest of
    a job asks."""

    group: ClassVar[str] = "strategy"
    retired: ClassVar[tuple[str, ...]] = ("sends",)
    implementation: ClassVar[str]  # "module:class" of its torch half, a `strategies.base.Strategy`
    scales_gradients: ClassVar[bool] = False  # whether it keeps fp16's small gradients from vanishing
    synchronises: ClassVar[bool] = True  # whether its steps wait for all ranks
    buckets_gradients: ClassVar[bool] = False  # in torch's DDP buckets, whose contents only operators' shapes tell
    saves_itself: ClassVar[str | None] = None  # who writes its state, where that is not to be done in the background
    resumes_on_other_ranks: ClassVar[bool] = True  # its state can be taken over by another number of ranks
    #: Files of conf/strategy that need less memory than one that slices nothing, with what they slice.
    lighter: ClassVar[dict[str, tuple[State, ...]]] = {}

    @property
    def slices(self) -> tuple[State, ...]:
        """Of which states a rank keeps a slice only."""
        return ()

    @property
    def label(self) -> str:
        """What tells its jobs from those of other strategies, and its own of other settings, in a word."""
        return self.kind

    def ranks_per_replica(self, ranks: int) -> int:
        """Return how many of a job's ranks work on the same samples together; the others on others."""
        return 1

    def world_obstacle(self, model: ModelConfig, ranks: int, samples: int) -> str | None:
        """Return why so many ranks cannot train a model with it, and what to do instead; None where they can.

        `samples`: of a replica and step.
        """
        return None

    @abstractmethod
    def sent(self, precision: str) -> Sent:
        """Return the collectives that carry its gradients and parameters: what a study's sweep measures."""

    def compile_obstacle(self) -> str | None:
        """Return why torch.compile does not go with it, and what to do instead; None where it does."""
        return None

    def accumulate_obstacle(self) -> str | None:
        """Return why a step's samples cannot be worked through in parts by `accumulate`; None where they can."""
        return None

    def precision_obstacle(self, precision: str) -> str | None:
        """Return why it cannot train in this arithmetic, and what to do instead; None where it can."""
        return None

    def device_obstacle(self, device: str) -> str | None:
        """Return why it cannot run on a kind of device, and what to do instead; None where it can."""
        return None
