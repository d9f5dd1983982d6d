"""Where a user's script runs: its rank, of how many, and the key-value store that its ranks share."""

import os
from contextlib import suppress
from dataclasses import dataclass

import torch
import torch.distributed as dist

from scalescope.launch.network.rendezvous import join
from scalescope.launch.world import World, discover
from scalescope.records.errors import UserError


@dataclass(frozen=True)
class Membership:
    """One process's membership among the script's ranks."""

    rank: int
    size: int
    source: str  # who started the ranks: torchrun | env | slurm | mpi | single
    backend: str | None  # nccl | gloo | …; None where the script made no process group
    device: torch.device
    store: dist.Store


def find_membership(timeout_s: float) -> Membership:
    """Return this process's membership: by the script's own process group where it made one, else by its launcher.

    Called once the first step has ended, when a script has made what it is going to make. Without a process group the
    launcher's address is joined for the store alone. Raises RuntimeError or UserError where the ranks do not meet.
    """
    world: World | None = None
    with suppress(UserError):  # a launcher's variables that are half there are no reason to end somebody's training
        world = discover()
    store = dist.distributed_c10d._get_default_store() if dist.is_initialized() else None
    if store is not None:  # MPI's backend has none
        size = dist.get_world_size()
        source = world.source if world is not None and world.size == size else "single" if size == 1 else "env"
        return Membership(dist.get_rank(), size, source, _backend(), _device(), store)
    if world is None or world.size == 1:
        return Membership(0, 1, world.source if world else "single", None, _device(), dist.HashStore())
    before = os.environ.copy()
    try:
        store = join(world, timeout_s)
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]  # what join sets for libraries, the script may read as a sign of something else
    return Membership(world.rank, world.size, world.source, None, _device(), store)


def _backend() -> str:
    name = str(dist.get_backend())
    return "nccl" if "nccl" in name and _device().type == "cuda" else name.partition(",")[0].rpartition(":")[2]


def _device() -> torch.device:
    """The device that the script uses: a GPU where it has touched one by now."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
