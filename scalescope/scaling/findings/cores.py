"""The cores that ranks may run on, and the threads that they compute with: fewer than those, and threads take turns."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from scalescope.records.environment import cores_of
from scalescope.records.rows import Device, Environment, RunInfo

#: They may bind each rank to cores of its own: what the first one may run on says nothing of how many all have.
_BINDING_LAUNCHERS = ("mpi", "slurm")


class CoreShare(NamedTuple):
    """One host's ranks that compute on its cores."""

    ranks: int
    threads: int  # that operators compute with, of all of them
    cores: int


def core_share(info: RunInfo, of_rank: int | None = None) -> CoreShare | None:
    """Return that of the host with most threads a core; None where no rank computes on CPUs, or nothing tells.

    `of_rank`: that of this rank's host, of which alone it is to be told.
    Of runs from before ranks told theirs, by the variable that all of them were started with, on the host that was
    looked at; torch takes no more of it than there are cores.
    """
    environment = info.environment if info.launcher not in _BINDING_LAUNCHERS else None
    by_host: dict[str, list[Device]] = defaultdict(list)
    for device in info.devices:
        if device.kind == "cpu":
            by_host[device.host].append(device)
    if of_rank is not None:
        by_host = {host: own for host, own in by_host.items() if any(one.rank == of_rank for one in own)}
    shares = [share for own in by_host.values() if (share := _share(own, environment)) is not None]
    return max(shares, key=lambda share: share.threads / share.cores, default=None)


def bound_cores(info: RunInfo, rank: int) -> int | None:
    """Return to how many cores of its host's ranks one is bound, where that makes it wait; None where it does not.

    A rank that is bound to cores of its own, as many as its threads, has what it needs: who else has these is not told.
    """
    own = next((one for one in info.devices if one.rank == rank and one.kind == "cpu"), None)
    cores = set(cores_of(own.cores or "")) if own is not None else set()
    if own is None or not cores:
        return None
    beside = [one for one in info.devices if one.host == own.host and one.kind == "cpu" and one.rank != rank]
    others = [set(cores_of(one.cores or "")) for one in beside]
    is_bound = any(theirs - cores for theirs in others) and all(others)
    shares = any(theirs & cores for theirs in others)
    return len(cores) if is_bound and (shares or (own.threads or 0) > len(cores)) else None


def _share(ranks: Sequence[Device], environment: Environment | None) -> CoreShare | None:
    told = [one.threads for one in ranks if one.threads is not None]
    cores = {core for one in ranks for core in cores_of(one.cores or "")}
    if len(told) == len(ranks) and cores:
        return CoreShare(len(ranks), sum(told), len(cores))
    threads = environment.variables.get("OMP_NUM_THREADS", "") if environment is not None else ""
    if environment is None or environment.host != ranks[0].host:
        return None
    if not threads.isascii() or not threads.isdigit() or not environment.cpu_cores:
        return None
    return CoreShare(len(ranks), len(ranks) * min(int(threads), environment.cpu_cores), environment.cpu_cores)
