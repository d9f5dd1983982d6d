"""The training job, typed. The defaults are in conf/ alone; torch-free, so that the front door stays quick."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore

from scalescope.launch.bounds import COUNT, COUNT_OR_NONE, check_numbers
from scalescope.launch.config import JobConfig, Sent
from scalescope.launch.keys import Variants, key
from scalescope.records.errors import UserError
from scalescope.train.models.config import ModelConfig
from scalescope.train.models.registry import MODELS
from scalescope.train.settings import (
    SAMPLES,
    DataConfig,
    OptimizerConfig,
    PrecisionConfig,
    ProfilerConfig,
    choose,
)
from scalescope.train.strategies.config import StrategyConfig
from scalescope.train.strategies.registry import STRATEGIES

#: What types the nodes whose class depends on what is chosen.
VARIANTS: Variants = {"model": MODELS, "strategy": STRATEGIES}


@dataclass
class TrainConfig(JobConfig):
    """conf/train.yaml: one training job."""

    steps: int = key()
    warmup_steps: int = key()
    global_batch_size: int | None = key()
    recompute: bool = key()
    accumulate: int = key()
    compile: Any = key()
    cudnn_benchmark: bool = key()
    validate_every: int | None = key()
    checkpoint_every: int | None = key(resumable=True)
    checkpoint_mode: str = key(resumable=True)
    keep_checkpoints: int = key(resumable=True)
    stop_on_bad_loss: bool = key()
    memory_history: bool = key(resumable=True)
    model: ModelConfig = key()
    data: DataConfig = key()
    strategy: StrategyConfig = key()
    precision: PrecisionConfig = key()
    optimizer: OptimizerConfig = key()
    profiler: ProfilerConfig = key()

    @property
    def what(self) -> str:
        return self.model.name

    @property
    def series(self) -> str:
        return f"{self.model.name}-{self.strategy.label}"

    @property
    def sent(self) -> Sent:
        return self.strategy.sent(self.precision.kind)

    @property
    def precision_kind(self) -> str:
        return self.precision.kind

    @property
    def active_steps(self) -> int:
        """How many steps each window records: where the config leaves it open, half of the steps stay unprofiled."""
        one = self.profiler
        if one.wait is None:
            each = (self.steps - self.warmup_steps) // 2 // one.repeat
        else:
            each = min(self.steps // one.repeat - one.wait, (self.steps - self.warmup_steps) // 2 // one.repeat)
        return one.most_active(room=each - one.warmup)

    @property
    def loosened(self) -> frozenset[str]:
        """With a fixed global batch, a job computes the same on any number of ranks, if its state can be taken over."""
        same = self.global_batch_size is not None and self.strategy.resumes_on_other_ranks
        return frozenset({"launch.ranks"}) if same else frozenset()

    def shared_out(self, ranks: int) -> list[str]:
        return [f"global_batch_size={self.model.batch_size * ranks}"]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_values()
        self._refuse_combinations()

    def _refuse_values(self) -> None:
        """Raise UserError for a value that no other makes right."""
        check_numbers(
            self,
            steps=COUNT,
            warmup_steps=COUNT_OR_NONE,
            global_batch_size=COUNT.or_null("for model.batch_size a rank"),
            accumulate=COUNT,
            validate_every=COUNT.or_null("for first and last"),
            checkpoint_every=COUNT.or_null("for none"),
            keep_checkpoints=COUNT,
        )
        window = (self.profiler.warmup + self.active_steps) * self.profiler.repeat if self.profiler.enabled else 0
        least = self.warmup_steps + window + 1
        if self.steps < least:
            raise UserError(f"steps={self.steps} leaves no step to measure: {self.warmup_steps} warm-up steps and "
                            f"{window} of the profiler need steps={least} at least")  # fmt: skip
        if self.compile not in ("auto", True, False):
            raise UserError(f"compile={self.compile}: choose one of auto, true, false")
        choose("checkpoint_mode", self.checkpoint_mode, ("auto", "sync", "background"))
        if self.resume and self.name is None:
            raise UserError("resume=true needs name=RUN, the run folder to go on with")

    def _refuse_combinations(self) -> None:
        """Raise UserError for the first of the parts that do not go together."""
        if (obstacle := next(filter(None, self._obstacles()), None)) is not None:
            raise UserError(obstacle)

    def _obstacles(self) -> Iterator[str | None]:
        strategy, model, precision = self.strategy, self.model, self.precision.kind
        if self.checkpoint_mode == "background" and strategy.saves_itself is not None:
            yield (f"checkpoint_mode=background with strategy={strategy.kind}: {strategy.saves_itself} writes its "
                   "state itself; use auto or sync")  # fmt: skip
        if self.compile is True:
            yield strategy.compile_obstacle()
        if self.accumulate > 1:
            yield strategy.accumulate_obstacle()
        if precision == "fp16" and not strategy.scales_gradients:
            scaling = " and ".join(kind for kind, each in STRATEGIES.items() if each.scales_gradients)
            yield (f"precision=fp16 with strategy={strategy.kind}: only {scaling} scale gradients; use "
                   "precision=bf16")  # fmt: skip
        yield strategy.precision_obstacle(precision)
        yield model.precision_obstacle(precision)
        yield strategy.device_obstacle(self.launch.device)
        if self.recompute:
            yield model.recompute_obstacle()
        if SAMPLES[self.data.kind] not in (None, model.reads):
            readable = next(kind for kind, samples in SAMPLES.items() if samples == model.reads)
            yield (f"data={self.data.kind} is {SAMPLES[self.data.kind]}, which {model.name} cannot read; use "
                   f"data={readable} or data=synthetic")  # fmt: skip


def register() -> None:
    """Make the types known to Hydra, under the names that conf/*.yaml ask for."""
    store = ConfigStore.instance()
    store.store(name="train_schema", node=TrainConfig)
    for group, kinds in VARIANTS.items():
        for kind, schema in kinds.items():
            store.store(group=group, name=f"{kind}_schema", node=schema)
