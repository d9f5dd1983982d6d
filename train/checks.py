"""What would make a training job fail, found before any process starts or any folder is made. Torch-free."""

from typing import cast

from scalescope.launch.config import JobConfig
from scalescope.records.environment import usable_cores
from scalescope.records.errors import UserError
from scalescope.train.config import TrainConfig
from scalescope.train.data.corpus import BYTE_VALUES, corpus_sizes
from scalescope.train.data.decoder_choice import choose_decoder
from scalescope.train.data.images import read_image_folder
from scalescope.train.data.windows import count_windows
from scalescope.train.measure.forecast import hopeless
from scalescope.train.measure.schedule import make_schedule
from scalescope.train.models.config import ImageModelConfig, TextModelConfig


def check(job: JobConfig, world_size: int) -> None:
    """Raise UserError for a training job that cannot run on `world_size` ranks."""
    config = cast(TrainConfig, job)
    if config.launch.backend == "mpi":
        _check_mpi()
    together = config.strategy.ranks_per_replica(world_size)
    samples = samples_per_rank(config, world_size)
    obstacle = config.strategy.world_obstacle(config.model, world_size, samples * together)
    if obstacle is not None:
        raise UserError(obstacle)
    if samples * together % config.accumulate:
        whose = "a rank" if together == 1 else f"{together} ranks together"
        raise UserError(
            f"accumulate={config.accumulate} does not divide the {samples * together} samples of {whose}; choose a "
            "divisor"
        )
    if make_schedule(config).steady_steps < 1:
        raise UserError(
            f"steps={config.steps}: warm-up and the profiler's windows leave no step to measure; raise steps"
        )
    if config.precision.kind == "fp8":
        _check_fp8(config.launch.device)
    unknown = [rank for rank in config.profiler.ranks or () if not 0 <= rank < world_size]
    if unknown:
        raise UserError(f"profiler.ranks names rank {unknown[0]}, but the job has ranks 0 to {world_size - 1}")
    if config.data.kind == "image_folder":
        _check_images(config, cast(ImageModelConfig, config.model), samples * world_size, world_size)
    elif config.data.kind != "synthetic":
        replicas = world_size // together
        _check_tokens(config, cast(TextModelConfig, config.model), samples * world_size, replicas)
    if config.launch.device == "cpu":
        said = hopeless(config.model, samples, config.steps, usable_cores())
        if said is not None:
            raise UserError(said)


def samples_per_rank(config: TrainConfig, world_size: int) -> int:
    """Return the samples of a rank and step. Raises UserError where a global batch does not split evenly."""
    total = config.global_batch_size
    if total is None:
        return config.model.batch_size
    if total < 1 or total % world_size:
        near = max(world_size, total - total % world_size)
        raise UserError(f"global_batch_size={total} does not split over {world_size} ranks; use {near}, say")
    return total // world_size


def _check_mpi() -> None:
    from torch.distributed import is_mpi_available  # the other checks do without torch

    if not is_mpi_available():
        raise UserError("launch.backend=mpi needs a torch that was built with MPI, and this one was not; use gloo, or "
                        "nccl on GPUs")  # fmt: skip


def _check_fp8(device: str) -> None:
    from scalescope.hardware.fp8 import fp8_obstacle  # loads torch, which the other checks do without
    from scalescope.train.models.fp8 import PACKAGE, has_package

    if obstacle := "the job runs on CPUs" if device == "cpu" else fp8_obstacle():
        raise UserError(f"precision=fp8 needs a GPU of NVIDIA's compute capability 8.9 or AMD's gfx942 or later, and "
                        f"{obstacle}; use precision=bf16")  # fmt: skip
    if not has_package():
        raise UserError(f"precision=fp8 multiplies by {PACKAGE}, which is not installed here: pip install "
                        "'scalescope[fp8]', or use precision=bf16")  # fmt: skip


def _check_images(config: TrainConfig, model: ImageModelConfig, samples_per_step: int, world_size: int) -> None:
    choose_decoder(config.data.decoder, config.launch.device)
    folder = read_image_folder(config.data)
    if len(folder.classes) > model.classes:
        raise UserError(f"data.path={config.data.path} has {len(folder.classes)} classes, and {model.name} knows "
                        f"{model.classes}; set model.classes={len(folder.classes)}")  # fmt: skip
    if len(folder.training) < samples_per_step:
        raise UserError(f"data.path={config.data.path} has {len(folder.training)} images to train on; a step reads "
                        f"{samples_per_step}; take more images, or a smaller batch")  # fmt: skip
    if config.data.validation_samples and len(folder.held_out) < world_size:
        raise UserError(f"{len(folder.held_out)} images are held out, and {world_size} ranks need at least one each; "
                        "raise data.validation_fraction, or set data.validation_samples=0")  # fmt: skip


def _check_tokens(config: TrainConfig, model: TextModelConfig, samples_per_step: int, replicas: int) -> None:
    if config.data.kind == "text" and model.vocabulary < BYTE_VALUES:
        raise UserError(f"model.vocabulary={model.vocabulary}: text is read by bytes, which need {BYTE_VALUES}")
    training, held_out = corpus_sizes(config.data)
    if count_windows(training, model.context) < samples_per_step:
        raise UserError(
            f"data.path={config.data.path} has {training:,} tokens to train on; a step reads "
            f"{samples_per_step} samples of model.context={model.context}, which need "
            f"{(samples_per_step + 1) * model.context:,}; take more data, or a smaller batch"
        )
    if config.data.validation_samples and held_out <= model.context:
        raise UserError(
            f"the held-out part has {held_out:,} tokens, and one sample reads {model.context + 1}; raise "
            "data.validation_fraction, or set data.validation_samples=0"
        )
    if 0 < config.data.validation_samples < replicas:
        raise UserError(
            f"data.validation_samples={config.data.validation_samples}: {replicas} ranks need "
            "at least one each, or 0 for none"
        )
