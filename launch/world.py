"""World discovery: which rank is this process, of how many, and who says so.

The first source that applies answers; a half-set source is an error that names the variables and the fix.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from scalescope.records.errors import UserError


@dataclass(frozen=True)
class World:
    """This process's place among the job's processes."""

    rank: int
    size: int
    local_rank: int
    local_size: int | None  # ranks on this host; None where the launcher does not say
    source: str  # torchrun | env | slurm | mpi

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise UserError(f"{self.source} says rank {self.rank} of {self.size}: a rank lies between 0 and size - 1")


def discover(environ: Mapping[str, str] = os.environ) -> World | None:
    """Return this process's world, or None where no launcher made one. Raises UserError for a half-set source."""
    for source in (_torchrun, _explicit, _slurm, _mpi):
        if (world := source(environ)) is not None:
            return world
    return None


def _torchrun(environ: Mapping[str, str]) -> World | None:
    # torchrun first: Slurm's variables around it say nothing about its ranks
    if "TORCHELASTIC_RUN_ID" not in environ:
        return None
    return _from(environ, "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def _explicit(environ: Mapping[str, str]) -> World | None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    if not any(name in environ for name in names):
        return None
    if "MASTER_ADDR" not in environ or "MASTER_PORT" not in environ:
        raise UserError("RANK, WORLD_SIZE or LOCAL_RANK is set without MASTER_ADDR and MASTER_PORT; "
                        "set them to rank 0's address and a free port, or unset the rank variables")  # fmt: skip
    return _from(environ, "env", *names, "LOCAL_WORLD_SIZE")


def _slurm(environ: Mapping[str, str]) -> World | None:
    # the body of an sbatch script has SLURM_PROCID=0 and SLURM_NTASKS without any srun: that is no world
    if "SLURM_STEP_ID" not in environ or int(environ.get("SLURM_STEP_NUM_TASKS", "1")) < 2:
        return None
    tasks = environ["SLURM_STEP_NUM_TASKS"]
    # mpirun starts its daemons by srun, one a node: their step says nothing of its ranks
    if any(environ.get(size, tasks) != tasks for _, size, _, _ in _MPI_NAMES):
        return None
    world = _from(environ, "slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", None)
    per_node = environ.get("SLURM_STEP_TASKS_PER_NODE", "")  # "2(x3)" or "2,1": equal only where it is one number
    local_size = int(per_node.split("(")[0]) if per_node and "," not in per_node else None
    return World(world.rank, world.size, world.local_rank, local_size, "slurm")


_MPI_NAMES = (  # rank, size, local rank, local size
    # Open MPI first: with oversubscription its local ranks are not rank % n, so they are read, never computed
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),  # MPICH, Intel MPI
)


def _mpi(environ: Mapping[str, str]) -> World | None:
    for rank, size, local_rank, local_size in _MPI_NAMES:
        if int(environ.get(size, "1")) > 1:
            return _from(environ, "mpi", rank, size, local_rank, local_size)
    return None


def _from(
    environ: Mapping[str, str], source: str, rank: str, size: str, local_rank: str, local_size: str | None
) -> World:
    missing = [name for name in (rank, size, local_rank) if name not in environ]
    if missing:
        raise UserError(f"the environment looks like {source}, but {', '.join(missing)} "
                        f"{'is' if len(missing) == 1 else 'are'} not set; start the job with its launcher, "
                        f"or unset {', '.join(n for n in (rank, size, local_rank) if n in environ)}")  # fmt: skip
    values = {}
    for name in (rank, size, local_rank, local_size):
        if name is None or name not in environ:
            continue
        try:
            values[name] = int(environ[name])
        except ValueError:
            raise UserError(f"{name}={environ[name]!r} is no whole number") from None
    return World(values[rank], values[size], values[local_rank], values.get(local_size) if local_size else None, source)
