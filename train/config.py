"""The training job, typed. The defaults are in conf/ alone; torch-free, so that the front door stays quick."""

from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from scalescope.launch.bounds import (
    BELOW_ONE,
    COUNT,
    COUNT_OR_NONE,
    NOT_NEGATIVE,
    POSITIVE,
    PROCESSES,
    SHARE,
    Bounds,
    check_numbers,
)
from scalescope.launch.config import JobConfig
from scalescope.records.errors import UserError

_BUCKET = Bounds(above=0, most=10**6)  # torch takes it in bytes


def _choose(where: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UserError(f"{where}={value}: choose one of {', '.join(choices)}")


@dataclass
class ModelConfig:
    """conf/model: which network. `kind` says which of the classes below types the rest."""

    kind: str = MISSING
    name: str = MISSING
    batch_size: int = MISSING  # samples a rank and step (the smallest rank count's, when scaling is strong)

    def __post_init__(self) -> None:
        check_numbers(self, "model.", batch_size=COUNT)


@dataclass
class GptConfig(ModelConfig):
    """A GPT-2-style decoder (Radford et al. 2019), parameter names as GPT-2's."""

    layers: int = MISSING
    heads: int = MISSING
    width: int = MISSING  # the residual stream's size
    context: int = MISSING  # tokens a sample
    vocabulary: int = MISSING
    attention: str = MISSING  # torch's kernel: auto | flash | cudnn | efficient | math

    def __post_init__(self) -> None:
        super().__post_init__()
        _choose("model.attention", self.attention, ("auto", "flash", "cudnn", "efficient", "math"))
        check_numbers(self, "model.", layers=COUNT, heads=COUNT, width=COUNT, context=COUNT, vocabulary=COUNT)
        if self.width % self.heads:
            raise UserError(f"model.width={self.width} is not a multiple of model.heads={self.heads}")


@dataclass
class ResNetConfig(ModelConfig):
    """ResNet-50 v1.5 (stride in the 3×3 convolution), parameter names as torchvision's."""

    classes: int = MISSING
    image_size: int = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "model.", classes=COUNT, image_size=COUNT)


@dataclass
class DataConfig:
    """conf/data: what the model eats."""

    kind: str = MISSING  # synthetic (made on the device) | text (by bytes) | tokens (uint16 .bin) | image_folder
    path: str | None = MISSING  # text: a file, or a folder whose files are read; tokens: train.bin; images: a folder
    validation_path: str | None = MISSING  # tokens: val.bin, images: a folder; null = a part of `path` is held out
    pattern: str = MISSING  # text in a folder: which files
    exclude: list[str] = MISSING  # text in a folder: folder names that are left out
    validation_fraction: float = MISSING  # the held-out part where there is no validation file
    validation_samples: int = MISSING  # held-out samples that a validation reads, over all ranks; 0 = no validation
    workers: int | None = MISSING  # loading processes a rank; 0 = in the step loop; null = as many as cores are left
    decoder: str = MISSING  # images: auto (nvjpeg where it is there) | pillow | torchvision | nvjpeg (on the device)
    corrupt: str = MISSING  # an image that cannot be read: skip (said, and the next one taken) | refuse (ends the job)

    def __post_init__(self) -> None:
        _choose("data.kind", self.kind, ("synthetic", "text", "tokens", "image_folder"))
        _choose("data.decoder", self.decoder, ("auto", "pillow", "torchvision", "nvjpeg"))
        _choose("data.corrupt", self.corrupt, ("skip", "refuse"))
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
class StrategyConfig:
    """conf/strategy: how the ranks share the work."""

    kind: str = MISSING  # ddp | fsdp2 | zero (DeepSpeed) | local (no communication)
    sends: list[str] = MISSING  # the collectives that carry its parameters and gradients: what a study's sweep measures
    bucket_mb: float = MISSING  # ddp, zero: gradients are exchanged in buckets of this size
    gradient_as_bucket_view: bool = MISSING  # ddp: gradients live in the buckets, which saves a copy
    static_graph: bool = MISSING  # ddp: the same parameters take part in every step
    compile_by_bucket: bool = MISSING  # ddp: a graph a bucket | one graph, which hands gradients over at its end
    gradient_dtype: str = MISSING  # ddp: what gradients travel as: fp32 | bf16 (half the bytes, rounded)
    reshard_after_forward: bool = MISSING  # fsdp2: free a block's parameters after its forward pass, gather them again
    prefetch: int = MISSING  # fsdp2: blocks that are gathered ahead
    stage: int = MISSING  # zero: what is sliced: 1 = optimiser state, 2 = gradients too, 3 = parameters too

    @property
    def cuts_below_a_mebibyte(self) -> bool:
        """Whether a compiled graph would be cut at buckets that torch refuses to cut at."""
        return self.kind == "ddp" and self.compile_by_bucket and self.bucket_mb < 1

    def __post_init__(self) -> None:
        _choose("strategy.kind", self.kind, ("ddp", "fsdp2", "local", "zero"))
        _choose("strategy.gradient_dtype", self.gradient_dtype, ("fp32", "bf16"))
        if self.stage not in (1, 2, 3):
            raise UserError(f"strategy.stage={self.stage}: ZeRO has the stages 1, 2 and 3")
        check_numbers(self, "strategy.", bucket_mb=_BUCKET, prefetch=COUNT_OR_NONE)


@dataclass
class PrecisionConfig:
    """conf/precision: the arithmetic."""

    kind: str = MISSING  # fp32 | tf32 | bf16 (autocast) | fp16 (autocast, scaled gradients) | fp8 (GPT's blocks)

    def __post_init__(self) -> None:
        _choose("precision.kind", self.kind, ("fp32", "tf32", "bf16", "fp16", "fp8"))


@dataclass
class OptimizerConfig:
    """conf/optimizer."""

    kind: str = MISSING  # adamw | sgd
    learning_rate: float = MISSING
    weight_decay: float = MISSING
    momentum: float = MISSING  # sgd
    betas: list[float] = MISSING  # adamw
    gradient_clip: float | None = MISSING
    warmup_steps: int = MISSING  # steps of linear warm-up, before the cosine
    final_fraction: float = MISSING  # what is left of the learning rate at the last step

    def __post_init__(self) -> None:
        _choose("optimizer.kind", self.kind, ("adamw", "sgd"))
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


@dataclass
class ProfilerConfig:
    """conf/profiler: the Kineto window, as torch.profiler.schedule counts it."""

    enabled: bool = MISSING
    wait: int | None = MISSING  # steps before the window, warm-up steps of the job included; null = as late as possible
    warmup: int = MISSING  # profiled and thrown away: the profiler's first steps are slow
    active: int = MISSING  # steps in the trace
    repeat: int = MISSING
    ranks: list[int] | None = MISSING  # whose traces; null = every rank's
    shapes: bool = MISSING
    stacks: bool = MISSING
    memory: bool = MISSING
    max_mib: float | None = MISSING  # a rank's traces, gzipped: windows end early or are left out; null = no limit

    def __post_init__(self) -> None:
        check_numbers(
            self,
            "profiler.",
            wait=COUNT_OR_NONE.or_null("for as late as possible"),
            warmup=COUNT_OR_NONE,
            active=COUNT,
            repeat=COUNT,
            ranks=COUNT_OR_NONE.or_null("for every rank's"),
            max_mib=POSITIVE.or_null("for no limit"),
        )


@dataclass
class TrainConfig(JobConfig):
    """conf/train.yaml: one training job."""

    steps: int = MISSING  # all steps, the profiler's window included
    warmup_steps: int = MISSING  # first steps, kept out of every figure
    global_batch_size: int | None = (
        MISSING  # strong scaling: samples a step over all ranks, not model.batch_size a rank
    )
    recompute: bool = MISSING  # activation checkpointing: keep a block's input only, compute the rest again
    accumulate: int = MISSING  # parts that a rank's samples are worked through in, before one update
    compile: Any = MISSING  # torch.compile: auto (on GPUs, where strategy and machine allow it) | true | false
    cudnn_benchmark: bool = MISSING  # let cuDNN time its convolutions first; false: the same ones in every process
    validate_every: int | None = MISSING  # steps; null = first and last, where there is held-out data
    checkpoint_every: int | None = MISSING  # steps; null = only when the job is asked to stop
    checkpoint_mode: str = MISSING  # sync | background (a thread writes, the loop goes on) | auto (background on GPUs)
    keep_checkpoints: int = MISSING  # how many of the newest are kept
    stop_on_bad_loss: bool = MISSING  # end the job when a loss is not finite
    memory_history: bool = MISSING  # on GPUs: note who asked for each block, for the snapshot of an out-of-memory
    model: ModelConfig = MISSING
    data: DataConfig = MISSING
    strategy: StrategyConfig = MISSING
    precision: PrecisionConfig = MISSING
    optimizer: OptimizerConfig = MISSING
    profiler: ProfilerConfig = MISSING

    @property
    def what(self) -> str:
        return self.model.name

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
        window = (self.profiler.warmup + self.profiler.active) * self.profiler.repeat if self.profiler.enabled else 0
        least = self.warmup_steps + window + 1
        if self.steps < least:
            raise UserError(f"steps={self.steps} leaves no step to measure: {self.warmup_steps} warm-up steps and "
                            f"{window} of the profiler need steps={least} at least")  # fmt: skip
        if self.compile not in ("auto", True, False):
            raise UserError(f"compile={self.compile}: choose one of auto, true, false")
        _choose("checkpoint_mode", self.checkpoint_mode, ("auto", "sync", "background"))
        if self.resume and self.name is None:
            raise UserError("resume=true needs name=RUN, the run folder to go on with")

    def _refuse_combinations(self) -> None:
        """Raise UserError for parts that do not go together."""
        if self.checkpoint_mode == "background" and self.strategy.kind == "zero":
            raise UserError("checkpoint_mode=background with strategy=zero: DeepSpeed writes its state itself; use "
                            "auto or sync")  # fmt: skip
        if self.compile is True and self.strategy.kind == "ddp" and self.strategy.static_graph:
            raise UserError(
                "compile=true cuts the model at DDP's bucket edges, which needs strategy.static_graph=false"
            )
        if self.compile is True and self.strategy.cuts_below_a_mebibyte:
            raise UserError(
                f"compile=true with strategy.bucket_mb={self.strategy.bucket_mb:g}: torch cuts a graph at buckets of "
                "1 MiB or more; use larger ones, or strategy.compile_by_bucket=false"
            )
        if self.compile is True and self.strategy.kind == "zero":
            raise UserError("compile=true with strategy=zero: DeepSpeed's hooks cannot be compiled; use ddp or fsdp2, "
                            "or compile=false")  # fmt: skip
        if self.precision.kind == "fp16" and self.strategy.kind not in ("ddp", "local"):
            raise UserError(f"precision=fp16 with strategy={self.strategy.kind}: only ddp and local scale gradients; "
                            "use precision=bf16")  # fmt: skip
        if self.precision.kind == "fp8" and self.strategy.kind == "zero":
            raise UserError("precision=fp8 with strategy=zero: DeepSpeed casts the weights itself; use ddp, fsdp2 or "
                            "local")  # fmt: skip
        if self.precision.kind == "fp8" and self.model.kind != "gpt":
            raise UserError(f"precision=fp8 is for linear layers, and {self.model.name} is made of convolutions; use "
                            "precision=bf16")  # fmt: skip
        if self.strategy.gradient_dtype == "bf16" and self.launch.device == "cpu":
            raise UserError("strategy.gradient_dtype=bf16 needs NCCL or RCCL, so GPUs; use fp32")
        if self.recompute and self.model.kind == "resnet":
            raise UserError(
                "recompute=true: ResNet's batch norms would count every batch twice; use it with GPT models"
            )
        if self.data.kind != "synthetic" and (self.data.kind == "image_folder") != (self.model.kind == "resnet"):
            eats, what = ("image_folder", "text") if self.model.kind == "resnet" else ("text", "images")
            raise UserError(f"data={self.data.kind} is {what}, which {self.model.name} cannot read; use data={eats} or "
                            "data=synthetic")  # fmt: skip


MODELS: dict[str, type[ModelConfig]] = {"gpt": GptConfig, "resnet": ResNetConfig}


def register() -> None:
    """Make the types known to Hydra, under the names that conf/*.yaml ask for."""
    store = ConfigStore.instance()
    store.store(name="train_schema", node=TrainConfig)
    store.store(group="model", name="gpt_schema", node=GptConfig)
    store.store(group="model", name="resnet_schema", node=ResNetConfig)
