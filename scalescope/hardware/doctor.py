"""The doctor: what of this machine and environment is fine, worth knowing, or broken, each with its way out.

`preflight` is its fast part, which every job runs before it starts: only what would make the job fail or mislead.
"""

import grp
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from scalescope.hardware.amd.build import check_build, check_channels_last, is_radeon
from scalescope.hardware.amd.host import check_rocm
from scalescope.hardware.amd.kfd import read_nodes
from scalescope.hardware.check_result import CheckResult, broken, fine, note
from scalescope.hardware.detect import architecture, describe, device_kind, links_of, versions
from scalescope.hardware.host import (
    check_busy_cores,
    check_clock,
    check_locked_memory,
    check_network,
    check_open_files,
    check_shared_memory,
)
from scalescope.hardware.peaks import find_peak
from scalescope.hardware.state import driver_device_count
from scalescope.hardware.visible import check_visible
from scalescope.records.environment import module_or_none, own_cores, usable_cores
from scalescope.records.mpi import library_near
from scalescope.records.rows import Device

_FREE_LEAST = 2 * 1024**3  # a run folder with traces of several ranks


def examine(runs: Path) -> list[CheckResult]:
    """Return every finding about this machine, the devices first."""
    checks: list[Callable[[], list[CheckResult]]] = [
        _versions,
        _devices,
        lambda: [check_busy_cores(own_cores(), hosts_compute=device_kind() == "cpu")],
        _visible,
        _links,
        lambda: _rocm() if torch.version.hip else [],
        _numa,
        lambda: [check_shared_memory(), check_open_files()],
        check_locked_memory,
        lambda: check_network(os.environ),
        _settings,
        lambda: [_slurm(), _mpi(), _wandb(), check_run_folder(runs), check_clock()],
    ]
    return [finding for check in checks for finding in check()]


def preflight() -> list[CheckResult]:
    """Return what is broken before a job starts, quickly."""
    findings = [*_visible(), *check_network(os.environ)]
    if device_kind() != "cpu":
        findings += [check_shared_memory(), *check_locked_memory()]
    return [finding for finding in findings if finding.level == "broken"]


def topology(devices: list[Device]) -> str:
    """Return one line that says what a job runs on: devices by host, and how those of this host are linked."""
    hosts: dict[str, list[Device]] = {}
    for device in devices:
        hosts.setdefault(device.host, []).append(device)
    parts = []
    for host, here in hosts.items():
        names = sorted({device.name for device in here})
        parts.append(f"{host}: {len(here)} × {', '.join(names)}")
    if devices[0].kind != "cpu" and (links := links_of(hosts[devices[0].host])):
        parts[0] += f" ({links.describe()})"
    return "; ".join(parts)


def check_run_folder(runs: Path) -> CheckResult:
    """Say whether run folders can be made there, and whether there is room for traces."""
    at = next((path for path in (runs, *runs.resolve().parents) if path.exists()), Path("/"))
    try:
        with tempfile.TemporaryFile(dir=at):
            pass
    except OSError as error:
        return broken(
            "run folder", f"{at} cannot be written: {error.strerror}", "set runs= to a folder that you may write"
        )
    free = shutil.disk_usage(at).free
    text = f"{at} can be written, {free / 1e9:.0f} GB free"
    if free < _FREE_LEAST:
        return note("run folder", f"{text}: traces of several ranks may not fit", "free room, or set runs= elsewhere")
    return fine("run folder", text)


def _versions() -> list[CheckResult]:
    found = versions("nccl" if torch.cuda.is_available() else "gloo")
    build = f"ROCm {found.hip}" if found.hip else f"CUDA {found.cuda}" if found.cuda else "CPU only"
    lines = [fine("torch", f"{found.torch} ({build}), {found.python}")]
    if found.driver:
        lines.append(fine("driver", found.driver))
    if found.collective_library:
        lines.append(fine("collectives", found.collective_library))
    return lines


def _devices() -> list[CheckResult]:
    if device_kind() == "cpu":
        present = driver_device_count()
        if present:
            return [
                broken(
                    "devices",
                    f"the driver has {present}, but torch sees none",
                    "check the visible-devices variables, and that this torch is a CUDA or ROCm build that "
                    "fits the driver",
                )
            ]
        if Path("/dev/kfd").exists() and torch.version.hip is None:
            return [broken("devices", "there is an AMD GPU (/dev/kfd), but this torch is no ROCm build",
                           "install torch from the packages that PyTorch publishes for your ROCm, and from no others "
                           "beside them, or pip takes the CUDA build; docs/howto.md has the line")]  # fmt: skip
        return [note("devices", f"no GPU; {usable_cores()} CPU cores ({describe(0, torch.device('cpu')).name})")]
    findings = []
    for index in range(torch.cuda.device_count()):
        device = describe(index, torch.device("cuda", index))
        memory = f"{(device.memory_bytes or 0) / 1e9:.0f} GB"
        state = [
            f"{device.temperature_c:.0f} °C" if device.temperature_c is not None else "",
            f"{device.power_w:.0f} W" if device.power_w is not None else "",
        ]
        says = ", ".join(filter(None, [device.name, memory, f"PCI {device.pci_bus}", *state]))
        if device.throttled not in (None, "no"):
            findings.append(
                note(f"device {index}", f"{says}; throttled: {device.throttled}", "check cooling and power")
            )
        elif find_peak(device.name) is None:
            findings.append(
                note(
                    f"device {index}",
                    f"{says}; no data-sheet peak on record: MFU is given over the measured ceiling alone",
                )
            )
        else:
            findings.append(fine(f"device {index}", says))
    return findings


def _visible() -> list[CheckResult]:
    if torch.version.hip is not None:
        nodes = read_nodes()
        return check_visible(os.environ, len(nodes) or driver_device_count(), True, [node.unique_id for node in nodes])
    return check_visible(os.environ, driver_device_count() if torch.cuda.is_available() else None, False)


def _links() -> list[CheckResult]:
    if torch.cuda.device_count() < 2:
        return []
    links = links_of([describe(index, torch.device("cuda", index)) for index in range(torch.cuda.device_count())])
    if links is None:
        return [note("links", "the driver does not tell how the devices are linked")]
    if not links.peer_access:
        return [
            note(
                "links",
                f"{links.describe()}: collectives between some pairs go through host memory",
                "check IOMMU, ACS and NCCL_P2P_DISABLE",
            )
        ]
    return [fine("links", links.describe())]


def _rocm() -> list[CheckResult]:
    groups = set()
    for number in {*os.getgroups(), os.getegid()}:
        try:
            groups.add(grp.getgrgid(number).gr_name)
        except KeyError:
            groups.add(str(number))
    kinds = [architecture(torch.cuda.get_device_properties(index)) for index in range(torch.cuda.device_count())]
    findings = [
        *check_build(kinds, torch.cuda.get_arch_list(), os.environ),
        *check_channels_last(kinds, os.environ),
        *check_rocm(os.environ, groups, consumer=any(is_radeon(each) for each in kinds)),
    ]
    if module_or_none("amdsmi") is None:
        findings.append(note("amdsmi", "is not there: no temperature, power, energy or throttling, and no names for "
                             "devices whose driver gives none", "pip install /opt/rocm/share/amd_smi"))  # fmt: skip
    return findings


def _numa() -> list[CheckResult]:
    """Say where a rank may run away from its device's memory: on machines of several NUMA nodes."""
    devices = [describe(index, torch.device("cuda", index)) for index in range(torch.cuda.device_count())]
    nodes = sorted({device.numa_node for device in devices if device.numa_node is not None})
    if len(nodes) < 2:
        return []
    return [note("NUMA", f"the devices hang on nodes {', '.join(map(str, nodes))}; ranks are not bound unless asked",
                 "launch.numa=node binds each rank to its device's node")]  # fmt: skip


def _settings() -> list[CheckResult]:
    """Say which collective-library settings are in force that change what is measured."""
    known = {
        "NCCL_NVLS_ENABLE": ("0", "reduction inside the switch is off: all_reduce stays below the ring's ceiling"),
        "NCCL_P2P_DISABLE": ("1", "peer-to-peer copies are off: everything goes through host memory"),
        "NCCL_SHM_DISABLE": ("1", "shared memory is off: ranks of one host talk over the network"),
        "NCCL_IB_DISABLE": ("1", "InfiniBand is off: nodes talk over sockets"),
        "NCCL_DEBUG": (None, "NCCL writes to the terminal or to NCCL_DEBUG_FILE"),
        "NCCL_ALGO": (None, "the algorithm is fixed for every collective of every job"),
        "NCCL_PROTO": (None, "the protocol is fixed for every collective of every job"),
        "CUDA_LAUNCH_BLOCKING": ("1", "every kernel launch waits: no figure of this process means anything"),
    }
    findings = []
    for name, (value, says) in known.items():
        if name in os.environ and (value is None or os.environ[name] == value):
            findings.append(note(name, f"={os.environ[name]}: {says}"))
    return findings


def _slurm() -> CheckResult:
    if shutil.which("sinfo") is None:
        return note("Slurm", "not here; jobs start by torchrun or mpirun")
    try:
        done = subprocess.run(
            ["sinfo", "-h", "-o", "%P %D %T"],
            capture_output=True, encoding="utf-8", errors="replace", timeout=10, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return note("Slurm", "sinfo does not answer within 10 s", "ask whether slurmctld is up")
    if done.returncode != 0:
        return note(
            "Slurm",
            f"installed, but {next(iter(done.stderr.splitlines()), 'sinfo fails')}",
            "set SLURM_CONF, or ask whether slurmctld is up",
        )
    return fine("Slurm", f"answers: {'; '.join(done.stdout.split(chr(10))[:3]).strip('; ')}")


def _mpi() -> CheckResult:
    mpirun = shutil.which("mpirun") or shutil.which("mpirun", path=str(Path(sys.executable).parent))
    if mpirun is None:
        return note(
            "MPI",
            "no mpirun, neither on the PATH nor beside this Python",
            "pip install mpich, where you want to start by mpirun",
        )
    # in processes of their own: an MPI library that fails to start takes its process along
    try:
        asked = subprocess.run(
            [mpirun, "--version"], capture_output=True, encoding="utf-8", errors="replace", timeout=10, check=False
        )
        open_mpi = "Open MPI" in asked.stdout or "OpenRTE" in asked.stdout
        library = library_near(open_mpi)
        done = subprocess.run(
            [sys.executable, "-c", "from mpi4py import MPI; print(MPI.Get_library_version().splitlines()[0])"],
            capture_output=True, encoding="utf-8", errors="replace", timeout=30, check=False,
            env={**({"MPI4PY_LIBMPI": library} if library else {}), **os.environ},
        )  # fmt: skip
    except (subprocess.TimeoutExpired, OSError):
        return note("MPI", f"{mpirun}, but it or mpi4py does not start within 30 s", "check the library that it loads")
    if done.returncode != 0:
        kind = "Open MPI" if open_mpi else "MPICH"
        return note("MPI", f"{mpirun} is {kind}'s, but mpi4py finds no library of its kind",
                    "load the site's MPI module, or pip install mpich and use its mpirun")  # fmt: skip
    loaded = done.stdout.strip()[:60]
    own, theirs = (re.search(r"Open MPI(?:\) | v)([\d.]+)", text) for text in (asked.stdout, loaded))
    if own and theirs and own[1] != theirs[1]:
        return note("MPI", f"{mpirun} is Open MPI {own[1]}, but mpi4py loads {loaded}",
                    "put that installation's lib folder into LD_LIBRARY_PATH")  # fmt: skip
    return fine("MPI", f"{mpirun}; mpi4py loads {loaded}")


def _wandb() -> CheckResult:
    if module_or_none("wandb") is None:
        return note("W&B", "not installed; jobs run with logger=none", "pip install wandb")
    netrc = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    try:
        logged_in = "WANDB_API_KEY" in os.environ or "api.wandb.ai" in netrc.read_text(
            encoding="utf-8", errors="replace"
        )
    except OSError:
        logged_in = False
    if logged_in:
        return fine("W&B", "logged in; runs are offline unless logger.wandb.mode=online")
    return note("W&B", "not logged in; runs are logged offline, to be sent later by `wandb sync`")
