"""Which device and backend a job gets, and how many ranks this machine can hold."""

from dataclasses import dataclass

from scalescope.launch.config import LaunchConfig
from scalescope.records.environment import usable_cores
from scalescope.records.errors import UserError

CPU_RANKS = 2  # where nobody says how many: enough for communication, few enough for a laptop
_RANK_START_S = 4.0  # of a core, to load torch and join (measured: 3 to 5)
_MOST_A_CORE = 64  # ranks; nobody means more, and as many processes would stop the machine


@dataclass(frozen=True)
class DeviceChoice:
    """What `auto` came to on this machine."""

    device: str  # cuda | cpu
    backend: str  # nccl | gloo
    ranks: int
    threads_per_rank: int

    def crowding(self, cores: int) -> str | None:
        """Return what to expect of ranks that share cores, which nothing else says for minutes; None where none do."""
        if self.device != "cpu" or self.ranks <= cores:
            return None
        start_s = _RANK_START_S * self.ranks / cores
        return (f"{self.ranks} ranks share {cores} core{'s' if cores != 1 else ''} and take turns: about "
                f"{start_s:.0f} s until all have begun, and their figures say little of communication")  # fmt: skip


def resolve(launch: LaunchConfig, world_size: int | None = None, local_size: int | None = None) -> DeviceChoice:
    """Return where a job runs; `world_size` and `local_size` are given inside a world that somebody else made.

    Raises UserError for a device that is not there, or for more ranks on this machine than it has devices.
    """
    from scalescope.hardware.detect import device_count  # loads torch, which a mistyped key need not wait for

    devices = device_count()
    device = launch.device if launch.device != "auto" else ("cuda" if devices else "cpu")
    if device == "cuda" and not devices:
        raise UserError("launch.device=cuda, but torch sees no GPU here; check the driver, the visible-devices "
                        "variables and that this torch is a CUDA or ROCm build, or use launch.device=cpu")  # fmt: skip
    backend = launch.backend if launch.backend != "auto" else ("nccl" if device == "cuda" else "gloo")
    if backend == "nccl" and device == "cpu":
        raise UserError("launch.backend=nccl needs GPUs; on CPUs use launch.backend=gloo")
    cores = usable_cores()
    if world_size is not None:
        # an unknown local size is no reason to refuse: the launcher placed the ranks
        here = local_size or min(world_size, devices or world_size)
        ranks = world_size
    else:
        here = ranks = launch.ranks or (devices if device == "cuda" else min(CPU_RANKS, cores))
    one_each = world_size is not None and devices == 1  # each rank may see a device of its own and no other
    if device == "cuda" and here > devices and not one_each:
        raise UserError(f"{here} ranks on a machine with {devices} GPU{'s' if devices != 1 else ''}: two ranks cannot "
                        f"share one; use launch.ranks={devices} at most")  # fmt: skip
    if world_size is None and ranks > _MOST_A_CORE * cores:
        raise UserError(f"{ranks} ranks on {cores} core{'s' if cores != 1 else ''} are no job: launch.ranks can be "
                        f"{_MOST_A_CORE * cores} here at most")  # fmt: skip
    threads = launch.threads_per_rank or max(1, cores // here)
    return DeviceChoice(device=device, backend=backend, ranks=ranks, threads_per_rank=threads)
