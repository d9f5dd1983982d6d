"""How a job starts: typed. The defaults are in conf/launch/*.yaml alone."""

from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore

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
from scalescope.launch.keys import key
from scalescope.records.errors import UserError

DEVICES = ("auto", "cuda", "cpu")
BACKENDS = ("auto", "nccl", "gloo", "mpi")


@dataclass
class LaunchConfig:
    """conf/launch: the ranks of a job and the machine's share that each gets."""

    ranks: int | None = key()
    device: str = key()
    backend: str = key()
    threads_per_rank: int | None = key(resumable=True)
    timeout_s: float = key(resumable=True)
    init_limit_s: float = key(resumable=True)
    step_limit_s: float = key(resumable=True)
    max_restarts: int = key(resumable=True)
    numa: str | None = key(resumable=True, added_as=None)

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise UserError(f"launch.device={self.device}: choose one of {', '.join(DEVICES)}")
        if self.backend not in BACKENDS:
            raise UserError(f"launch.backend={self.backend}: choose one of {', '.join(BACKENDS)}")
        if self.numa not in (None, "node"):
            raise UserError(f"launch.numa={self.numa}: choose node, or null")
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


@dataclass(frozen=True)
class Sent:
    """The collectives that a job sends, and of which dtypes: what a sweep must have for them to be held against."""

    operations: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()


@dataclass
class JobConfig:
    """What every measuring job has, whatever it measures."""

    name: str | None = key()
    runs: str = key(resumable=True)
    study: str | None = key(resumable=True)
    resume: bool = key(resumable=True)
    seed: int = key()
    launch: LaunchConfig = key()
    logger: dict[str, Any] = key(resumable=True)

    @property
    def what(self) -> str:
        """One word for the run folder's name: what is measured."""
        return "job"

    @property
    def series(self) -> str:
        """What a study calls this job, whatever its number of ranks."""
        return self.what

    @property
    def sent(self) -> Sent:
        """What a sweep beside this job measures."""
        return Sent()

    @property
    def precision_kind(self) -> str:
        """The arithmetic whose ceiling counts."""
        return "bf16"

    @property
    def loosened(self) -> frozenset[str]:
        """Keys that may change on resuming since others of this job's decide what they else would."""
        return frozenset()

    def shared_out(self, ranks: int) -> list[str]:
        """Return the overrides that hold what `ranks` ranks do in a step fixed, for strong scaling."""
        raise UserError("scaling=strong is for training jobs")

    def __post_init__(self) -> None:
        check_numbers(self, seed=SEED)
        _check_sinks(self.logger)


@dataclass
class StudyConfig:
    """conf/study.yaml: the same training job at several rank counts, and the collectives sweep beside it."""

    name: str | None = key()
    runs: str = key()
    resume: bool = key()
    gpu_counts: Any = key()
    scaling: str = key()
    cases: list[list[str]] = key()
    with_sweep: bool = key()
    repeats: int = key()
    try_advice: bool = key()
    launch: LaunchConfig = key()
    logger: dict[str, Any] = key()

    def __post_init__(self) -> None:
        if self.scaling not in ("weak", "strong"):
            raise UserError(f"scaling={self.scaling}: choose weak or strong")
        if self.resume and self.name is None:
            raise UserError("resume=true needs name=STUDY, the study folder to go on with")
        check_number("repeats", self.repeats, COUNT)
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
        for setting, value in settings.items():
            if is_whole(value) or isinstance(value, float):
                check_number(f"logger.{name}.{setting}", value, NOT_NEGATIVE)


def register() -> None:
    """Make the study's type known to Hydra."""
    ConfigStore.instance().store(name="study_schema", node=StudyConfig)
