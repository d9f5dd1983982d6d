"""How a job starts: typed. The defaults are in conf/launch/*.yaml alone."""

from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from scalescope.launch.bounds import (
    COUNT,
    COUNT_OR_NONE,
    NOT_NEGATIVE,
    SECONDS,
    SEED,
    THREADS,
    as_written,
    check_number,
    check_numbers,
    is_whole,
)
from scalescope.records.errors import UserError

DEVICES = ("auto", "cuda", "cpu")
BACKENDS = ("auto", "nccl", "gloo", "mpi")


@dataclass
class LaunchConfig:
    """conf/launch: the ranks of a job and the machine's share that each gets."""

    ranks: int | None = MISSING  # processes on this machine; null = one a device, or two on a CPU
    device: str = MISSING  # auto | cuda (NVIDIA and AMD) | cpu
    backend: str = MISSING  # auto | nccl (RCCL on AMD) | gloo | mpi
    threads_per_rank: int | None = MISSING  # null = cores // ranks; a study uses cores // its largest count for all
    timeout_s: float = MISSING  # how long a collective may take, and all that may take long: compiling, saving, a trace
    init_limit_s: float = MISSING  # how long ranks may wait for each other at the start before the job is ended
    # how long a training step may take beyond three times the longest of the last, and a rank be without a sign of life
    step_limit_s: float = MISSING
    max_restarts: int = MISSING  # how often torchrun starts failed ranks again

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise UserError(f"launch.device={self.device}: choose one of {', '.join(DEVICES)}")
        if self.backend not in BACKENDS:
            raise UserError(f"launch.backend={self.backend}: choose one of {', '.join(BACKENDS)}")
        check_numbers(
            self,
            "launch.",
            ranks=COUNT.or_null("for one a device"),
            threads_per_rank=THREADS.or_null("for an equal share of the cores"),
            timeout_s=SECONDS,
            init_limit_s=SECONDS,
            step_limit_s=SECONDS,
            max_restarts=COUNT_OR_NONE,
        )


@dataclass
class JobConfig:
    """What every measuring job has, whatever it measures."""

    name: str | None = MISSING  # the run folder's name; null = <date>-<verb>-<what>-<short id>
    runs: str = MISSING  # the folder that holds run folders
    study: str | None = MISSING  # the study this run belongs to, which is also its W&B group
    resume: bool = MISSING  # go on with the run folder `name` where it stopped; what is measured already stays
    seed: int = MISSING
    launch: LaunchConfig = MISSING
    logger: dict[str, Any] = MISSING  # conf/logger: live sinks by name (launch/sinks.py)

    @property
    def what(self) -> str:
        """One word for the run folder's name: what is measured."""
        return "job"

    def __post_init__(self) -> None:
        check_numbers(self, seed=SEED)
        _check_sinks(self.logger)


@dataclass
class StudyConfig:
    """conf/study.yaml: the same training job at several rank counts, and the collectives sweep beside it."""

    name: str | None = MISSING
    runs: str = MISSING
    gpu_counts: Any = MISSING  # auto (powers of two up to this machine's devices, and all of them) | a list
    scaling: str = MISSING  # weak: model.batch_size a rank | strong: the smallest count's whole batch, shared out
    cases: list[list[str]] = MISSING  # training jobs, each a list of overrides; [] = one, as the command line says
    with_sweep: bool = MISSING
    try_advice: bool = MISSING  # one more run of each job's largest count, with the best advice followed
    launch: LaunchConfig = MISSING
    logger: dict[str, Any] = MISSING  # the sinks of every job, and of the study's own analysis

    def __post_init__(self) -> None:
        if self.scaling not in ("weak", "strong"):
            raise UserError(f"scaling={self.scaling}: choose weak or strong")
        _check_sinks(self.logger)
        if self.gpu_counts != "auto":
            counts = self.gpu_counts
            if not isinstance(counts, list) or not counts or not all(is_whole(n) and n > 0 for n in counts):
                raise UserError(
                    f"gpu_counts={as_written(counts)}: give auto, or a list of whole numbers such as [1,2,4]"
                )
            self.gpu_counts = sorted(set(counts))


def _check_sinks(logger: dict[str, Any]) -> None:
    """Raise UserError for a number that no sink can use. Which keys there are, a sink knows itself."""
    for name, settings in logger.items():
        for key, value in settings.items():
            if is_whole(value) or isinstance(value, float):
                check_number(f"logger.{name}.{key}", value, NOT_NEGATIVE)


def register() -> None:
    """Make the study's type known to Hydra."""
    ConfigStore.instance().store(name="study_schema", node=StudyConfig)
