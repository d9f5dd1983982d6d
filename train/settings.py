"""The parts of a training job's config that are of one class whatever is chosen: data, arithmetic, optimiser, profiler.
What a key means stands beside its default, in conf/. Torch-free."""

from dataclasses import dataclass

from scalescope.launch.bounds import (
    BELOW_ONE,
    COUNT,
    COUNT_OR_NONE,
    NOT_NEGATIVE,
    POSITIVE,
    PROCESSES,
    SHARE,
    check_numbers,
)
from scalescope.launch.keys import key
from scalescope.records.errors import UserError

#: What a data set's samples are, by its kind; None: whatever the model reads. Of several, the first is advised.
SAMPLES: dict[str, str | None] = {"synthetic": None, "text": "text", "tokens": "text", "image_folder": "images"}


def choose(where: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise UserError for a word that is none of the choices."""
    if value not in choices:
        raise UserError(f"{where}={value}: choose one of {', '.join(choices)}")


@dataclass
class DataConfig:
    """conf/data: what the model reads."""

    kind: str = key()
    path: str | None = key()
    validation_path: str | None = key()
    pattern: str = key()
    exclude: list[str] = key()
    validation_fraction: float = key()
    validation_samples: int = key()
    workers: int | None = key(resumable=True)
    decoder: str = key()
    corrupt: str = key()

    def __post_init__(self) -> None:
        choose("data.kind", self.kind, tuple(SAMPLES))
        choose("data.decoder", self.decoder, ("auto", "pillow", "torchvision", "nvjpeg"))
        choose("data.corrupt", self.corrupt, ("skip", "refuse"))
        if self.kind != "synthetic" and not self.path:
            raise UserError(f"data={self.kind} needs data.path={'FOLDER' if self.kind == 'image_folder' else 'FILE'}")
        check_numbers(
            self,
            "data.",
            validation_fraction=BELOW_ONE,
            validation_samples=COUNT_OR_NONE,
            workers=PROCESSES.or_null("for as many as cores are left"),
        )


@dataclass
class PrecisionConfig:
    """conf/precision: the arithmetic."""

    kind: str = key()

    def __post_init__(self) -> None:
        choose("precision.kind", self.kind, ("fp32", "tf32", "bf16", "fp16", "fp8"))


@dataclass
class OptimizerConfig:
    """conf/optimizer."""

    kind: str = key()
    learning_rate: float = key()
    weight_decay: float = key()
    momentum: float = key()
    betas: list[float] = key()
    gradient_clip: float | None = key()
    warmup_steps: int = key()
    final_fraction: float = key()

    def __post_init__(self) -> None:
        choose("optimizer.kind", self.kind, ("adamw", "sgd"))
        if self.kind == "adamw" and len(self.betas) != 2:
            raise UserError(f"optimizer.betas={self.betas}: AdamW has two")
        check_numbers(
            self,
            "optimizer.",
            learning_rate=POSITIVE,
            weight_decay=NOT_NEGATIVE,
            momentum=BELOW_ONE,
            betas=BELOW_ONE,
            gradient_clip=POSITIVE.or_null("for none"),
            warmup_steps=COUNT_OR_NONE,
            final_fraction=SHARE,
        )


#: Steps of a window where the config leaves it open, at least and at most: hosts have their cores by turns, so three
#: steps differ from the next three by a tenth (of a job on two devices whose hosts load data: 17 to 32 ms).
_LEAST_ACTIVE, _MOST_ACTIVE = 3, 10


@dataclass
class ProfilerConfig:
    """conf/profiler: the Kineto window, as torch.profiler.schedule counts it."""

    enabled: bool = key()
    wait: int | None = key()
    warmup: int = key()
    active: int | None = key(auto_goes_on=True)
    repeat: int = key()
    ranks: list[int] | None = key()
    shapes: bool | None = key(resumable=True)
    stacks: bool = key()
    memory: bool = key()
    max_mib: float | None = key()
    on_anomaly: bool = key(added_as=False)
    anomaly_every: int = key(added_as=500)

    def __post_init__(self) -> None:
        check_numbers(
            self,
            "profiler.",
            wait=COUNT_OR_NONE.or_null("for as late as possible"),
            warmup=COUNT_OR_NONE,
            active=COUNT.or_null("for up to ten"),
            repeat=COUNT,
            ranks=COUNT_OR_NONE.or_null("for every rank's"),
            max_mib=POSITIVE.or_null("for no limit"),
            anomaly_every=COUNT,
        )

    @property
    def is_left_open(self) -> bool:
        """Whether a window may record fewer steps than `most_active`, where one has many operators."""
        return self.active is None

    def most_active(self, room: int = _MOST_ACTIVE) -> int:
        """Return how many steps a window records, of few operators.

        `room`: up to how many fit, where the config leaves it open; three are recorded in any case.
        """
        return max(_LEAST_ACTIVE, min(_MOST_ACTIVE, room)) if self.active is None else self.active
