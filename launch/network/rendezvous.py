"""How the ranks of a world find each other: one address, one port, one store."""

import errno
import faulthandler
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist

from scalescope.launch.network.loopback import is_loopback, listening
from scalescope.launch.network.mpi_segments import unlink_segments
from scalescope.launch.world import World
from scalescope.records.environment import module_or_none
from scalescope.records.errors import RunError, UserError
from scalescope.records.mpi import choose_library


def join(world: World, timeout_s: float) -> dist.Store:
    """Return the world's key-value store; it returns once this rank has reached it, and waits for no other.

    Sets MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and LOCAL_RANK where the launcher did not, since libraries read
    them. Raises UserError where the address cannot be had or its port is taken, RunError where nobody answers there.
    """
    if world.source == "slurm":
        _set_master(*_slurm_master())
    elif world.source == "mpi":
        with _ended_after(timeout_s):
            _set_master(*_mpi_master(world))
    os.environ.update(RANK=str(world.rank), WORLD_SIZE=str(world.size), LOCAL_RANK=str(world.local_rank))
    address, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    timeout = timedelta(seconds=timeout_s)
    try:
        if world.source == "torchrun":  # its agent may serve the store, which torch's own handler knows to ask for
            store, _, _ = next(dist.rendezvous("env://", world.rank, world.size, timeout=timeout))
            return dist.PrefixStore(f"attempt/{restarts()}", store)  # it keeps what earlier attempts have left
        listener = listening(address, int(port)).detach() if world.rank == 0 and is_loopback(address) else None
        return dist.TCPStore(address, int(port), world.size, is_master=world.rank == 0, timeout=timeout,
                             wait_for_workers=False, multi_tenant=True, master_listen_fd=listener)  # fmt: skip
    except (RuntimeError, ValueError, OSError) as error:
        if "EADDRINUSE" in str(error) or getattr(error, "errno", None) == errno.EADDRINUSE:
            raise UserError(f"port {port} of this host, where the ranks were to meet, is taken by another process; "
                            "set MASTER_PORT to a free one") from error  # fmt: skip
        raise RunError(f"rank {world.rank} reached no rank 0 at {address}:{port} within {timeout_s:g} s "
                       f"({next(iter(str(error).splitlines()), '')[:200]}); is MASTER_ADDR rank 0's host, "
                       "can it be reached from here, and is MASTER_PORT open?") from error  # fmt: skip


def restarts() -> int:
    """Return how often torchrun has started this job's ranks again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _set_master(address: str, port: int) -> None:
    # what the user set by hand wins: he may know the right interface
    os.environ.setdefault("MASTER_ADDR", address)
    os.environ.setdefault("MASTER_PORT", str(port))


def _slurm_master() -> tuple[str, int]:
    """Return the first node of the step, and a port derived from job and step, the same on every rank."""
    nodes = os.environ.get("SLURM_STEP_NODELIST", os.environ.get("SLURM_JOB_NODELIST", ""))
    port = 15000 + (int(os.environ["SLURM_JOB_ID"]) * 37 + int(os.environ["SLURM_STEP_ID"])) % 20000
    if os.environ.get("SLURM_STEP_NUM_NODES") == "1":
        return "127.0.0.1", port
    if scontrol := shutil.which("scontrol"):
        answer = subprocess.run(
            [scontrol, "show", "hostnames", nodes], capture_output=True, encoding="utf-8", errors="replace", check=False
        )
        if answer.returncode == 0 and answer.stdout.strip():
            return answer.stdout.split()[0], port
    return first_host(nodes), port


def first_host(nodes: str) -> str:
    """Return the first host of a Slurm node list, `gpu[003-010,12],login` → `gpu003`. Raises UserError."""
    match = re.match(r"([^,\[]+)(?:\[([^\]]+)\])?([^,\[]*)", nodes)
    if not match:
        raise UserError(
            f"cannot read the first node of SLURM_STEP_NODELIST={nodes!r}; set MASTER_ADDR to rank 0's host"
        )
    prefix, ranges, suffix = match.groups()
    if not ranges:
        return prefix
    return f"{prefix}{re.split('[-,]', ranges)[0]}{suffix}"


def _mpi_master(world: World) -> tuple[str, int]:
    """Return rank 0's address and a port that is free there, by broadcast."""
    choose_library()
    if module_or_none("mpi4py.MPI") is None:
        raise UserError("started by mpirun, but mpi4py finds no MPI library of its kind; pip install mpich and use its "
                        "mpirun, put the library's folder into LD_LIBRARY_PATH, or set RANK, "
                        "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT yourself")  # fmt: skip
    from mpi4py import MPI

    if MPI.COMM_WORLD.Get_size() != world.size:
        raise UserError(f"mpirun started {world.size} ranks, but mpi4py's library sees {MPI.COMM_WORLD.Get_size()}: "
                        "mpirun and mpi4py's MPI library differ; use the mpirun of the same installation")  # fmt: skip
    hosts = MPI.COMM_WORLD.allgather(socket.gethostname())
    unlink_segments()
    address = "127.0.0.1" if len(set(hosts)) == 1 else hosts[0]
    place: tuple[str, int] = MPI.COMM_WORLD.bcast((address, free_port()) if world.rank == 0 else None)
    return place


@contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """End this process, with its stack on stderr and exit code 1, where MPI does not bring the ranks together in time.

    MPI waits for ever for a rank that has ended before it came to MPI, and holds Python's lock meanwhile: neither a
    thread of Python's nor a signal's handler gets to run.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def free_port() -> int:
    """Return a port that is free on this host at this moment."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
