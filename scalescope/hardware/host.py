"""The host around the devices: limits, shared memory, network, clock. Torch-free.

Everything is read below a root folder, so that a test can lay out a machine that it has not got.
"""

import ipaddress
import resource
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from scalescope.hardware.check_result import CheckResult, broken, fine, note

_GIB = 1024**3
_TIME_SERVICES = ("chronyd", "ntpd", "systemd-timesyncd", "ptp4l", "phc2sys")
SHARED_MEMORY_LEAST = _GIB  # NCCL's and the loaders' shared segments; Docker's default of 64 MiB is not enough
#: For so long the cores are looked at; of them, what others may use before a measurement suffers.
_LOOKS_S = 0.3
_BUSY_COMPUTING, _BUSY_LAUNCHING = 0.1, 0.5
OPEN_FILES_LEAST = 4096  # every pair of ranks holds sockets and shared segments open


def check_shared_memory(path: Path = Path("/dev/shm")) -> CheckResult:
    """Say whether shared memory is large enough for NCCL and loading processes."""
    try:
        size = shutil.disk_usage(path).total
    except OSError as error:
        return broken("shared memory", f"{path}: {error.strerror}", "mount a tmpfs there; in a container: --ipc=host")
    text = f"{path} has {size / _GIB:.1f} GiB"
    if size < SHARED_MEMORY_LEAST:
        return broken(
            "shared memory",
            f"{text}, less than {SHARED_MEMORY_LEAST / _GIB:g}",
            "start the container with --ipc=host or --shm-size=8g",
        )
    return fine("shared memory", text)


def check_open_files() -> CheckResult:
    """Say whether a process may open as many files as a large job needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= OPEN_FILES_LEAST:
        return fine("open files", f"up to {soft} a process")
    return note("open files", f"only {soft} a process; jobs of hundreds of ranks need more", f"ulimit -n {hard}")


def check_locked_memory(root: Path = Path("/")) -> list[CheckResult]:
    """Say whether memory may be locked, where there is InfiniBand or RoCE that needs it."""
    if not _children(root / "sys/class/infiniband"):
        return []
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        return [fine("locked memory", "unlimited, as RDMA needs")]
    return [
        broken(
            "locked memory",
            f"only {soft / 1024:.0f} KiB, but RDMA registers whole buffers",
            "ulimit -l unlimited (in a container: --ulimit memlock=-1; in Slurm: PropagateResourceLimitsExcept)",
        )
    ]


def check_network(environ: Mapping[str, str], root: Path = Path("/")) -> list[CheckResult]:
    """Say whether this host knows its own name, and whether the interfaces that were chosen exist."""
    findings = []
    host = socket.gethostname()
    try:
        addresses = sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
        says = f"{host} is {', '.join(addresses)}"
        if all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses):
            findings.append(
                note(
                    "host name",
                    f"{says}, which leads other hosts to themselves; fine on one host",
                    "for jobs over several hosts, give it its network address in /etc/hosts, or start torchrun with "
                    "--local-addr",
                )
            )
        else:
            findings.append(fine("host name", says))
    except OSError:
        findings.append(
            note(
                "host name",
                f"{host} does not resolve: other nodes will not find this one by name",
                "add it to /etc/hosts, or set MASTER_ADDR to an address",
            )
        )
    present = {path.name for path in _children(root / "sys/class/net")}
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = environ.get(name)
        if value and present and not _interface_exists(value, present):
            findings.append(
                broken(
                    name,
                    f"{value!r} names no interface of this host ({', '.join(sorted(present))})",
                    f"set {name} to one of them, or unset it",
                )
            )
    return findings


def check_clock() -> CheckResult:
    """Say whether a time service disciplines the clock; one host needs none, several do."""
    running = {process.info["name"] for process in psutil.process_iter(["name"])}
    service = next((name for name in _TIME_SERVICES if name in running), None)
    if service is not None:
        return fine("clock", f"kept by {service}")
    return note("clock", "no time service runs; fine on one host, across hosts offsets are estimated from the traces")


def check_busy_cores(cores: Sequence[int], *, hosts_compute: bool) -> CheckResult:
    """Say how many of these cores others use just now: ranks that share them take longer, now here and now there.

    `hosts_compute`: whether ranks will compute on them, or only launch what devices do.
    """
    share = psutil.cpu_percent(interval=_LOOKS_S, percpu=True)
    known = [share[core] for core in cores if core < len(share)]
    busy, count = sum(known) / 100, len(known)
    if not known or busy < (_BUSY_COMPUTING if hosts_compute else _BUSY_LAUNCHING) * count:
        return fine("cores", f"{count}, of which others use {busy:.1f} just now")
    return note(
        "cores",
        f"others use {busy:.1f} of {count} just now: steps take longer by what they wait for one",
        "measure when they are done (`top` shows them), or give each job cores of its own (taskset, Slurm)",
    )


def _interface_exists(value: str, present: set[str]) -> bool:
    # NCCL's syntax: prefixes, "=exact", "^excluded"
    if value.startswith("^"):
        return True
    exact = value.startswith("=")
    wanted = value.lstrip("=").split(",")
    return any(name == word if exact else name.startswith(word) for word in wanted for name in present)


def _children(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []
