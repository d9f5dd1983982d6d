"""What every model says of itself without torch: its keys, what it reads, what it costs, what does not go with it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from scalescope.launch.bounds import COUNT, check_numbers
from scalescope.launch.keys import Variant, key
from scalescope.train.models.flops import Flops


@dataclass
class ModelConfig(Variant, ABC):
    """conf/model: which network. Each model's own class has its keys, and answers what the rest of a job asks."""

    group: ClassVar[str] = "model"
    network: ClassVar[str]  # "module:class" of its torch half, a `models.network.Network`
    stage: ClassVar[str]  # "module:class" of its stages in a pipeline, a `models.network.Stage`; where there are any
    reads: ClassVar[str]  # what samples it reads: text | images
    gathers_in_bf16: ClassVar[bool] = True  # whether all of its parameters may be cast to bf16 and back

    name: str = key()
    batch_size: int = key()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "model.", batch_size=COUNT)

    @property
    def tokens_per_sample(self) -> int | None:
        """Tokens of a sample; None where a sample is no text."""
        return None

    @property
    def mlperf_benchmark(self) -> str | None:
        """Which benchmark of MLPerf Training trains this network; None where none does."""
        return None

    @property
    def parameters(self) -> int | None:
        """How many parameters the network will have, before it is built; None where only building it tells."""
        return None

    @abstractmethod
    def flops(self, parameters: int, recompute: bool) -> Flops:
        """Return what a sample costs, of a network with so many parameters."""

    def precision_obstacle(self, precision: str) -> str | None:
        """Return why the model cannot train in this arithmetic, and what to do instead; None where it can."""
        return None

    def recompute_obstacle(self) -> str | None:
        """Return why blocks cannot be computed again in the backward pass; None where they can."""
        return None

    def slice_obstacle(self, degree: int) -> str | None:
        """Return why so many ranks cannot share each of its layers, and what to do instead; None where they can."""
        return f"{self.name} has no layers that ranks can share; use a GPT model, or strategy=ddp"

    def stage_obstacle(self, stages: int) -> str | None:
        """Return why it cannot be cut into so many stages, and what to do instead; None where it can."""
        return f"{self.name} is not cut into stages; use a GPT model, or strategy=ddp"

    def recompute_saves(self, samples: int) -> float | None:
        """Return how many numbers of so many samples `recompute` need not keep; None where that is not known."""
        return None


@dataclass
class TextModelConfig(ModelConfig):
    """A model that reads windows of tokens, and predicts each one's next."""

    reads: ClassVar[str] = "text"

    context: int = key()
    vocabulary: int = key()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "model.", context=COUNT, vocabulary=COUNT)

    @property
    def tokens_per_sample(self) -> int | None:
        return self.context


@dataclass
class ImageModelConfig(ModelConfig):
    """A model that reads square images, and tells their class."""

    reads: ClassVar[str] = "images"

    classes: int = key()
    image_size: int = key()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "model.", classes=COUNT, image_size=COUNT)
