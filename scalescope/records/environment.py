"""Environment capture by allow-list."""

import importlib
import os
import platform
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from scalescope.records.rows import Environment, Versions
from scalescope.records.variables import KEPT, NAMED, NOT_KEPT

#: A core's number, of no more digits than an int is read from.
_CORE = re.compile(r"[0-9]{1,9}")
#: No host has more cores in a row: a damaged file is not to fill the memory.
_MOST_CORES = 65_536


def allowed_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that explain a figure, by name, sorted. Nothing else of the environment is ever kept."""
    kept = {name: value for name, value in environ.items() if name in KEPT}
    named = {name: NOT_KEPT for name in environ if name.startswith(NAMED) and name not in KEPT}
    return dict(sorted({**kept, **named}.items()))


def capture(versions: Versions) -> Environment:
    """Describe this process's machine; `versions` come from whoever may import torch."""
    return Environment(
        host=socket.gethostname(),
        platform=platform.platform(),
        cpu=cpu_name(),
        cpu_cores=usable_cores(),
        versions=versions,
        variables=allowed_variables(os.environ),
    )


def usable_cores() -> int:
    """Return the cores this process may run on, which a container or Slurm can make fewer than the machine has."""
    return len(own_cores())


def own_cores() -> list[int]:
    """Return which cores those are."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_list(cores: Sequence[int]) -> str:
    """Return cores as Linux lists them: 0-3,8."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def cores_of(text: str) -> list[int]:
    """Return the cores of such a list; none of what is no such list."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not _CORE.fullmatch(first) or not _CORE.fullmatch(last or first):
            return []
        found += range(int(first), min(int(last or first), int(first) + _MOST_CORES) + 1)
    return found


def cpu_name() -> str:
    """Return the processor's name as the kernel tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def module_or_none(name: str) -> ModuleType | None:
    """Return an optional module, or None where it is not installed or its library is missing."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError, KeyError, RuntimeError):  # amdsmi without ROCm's paths, mpi4py without an MPI
        return None
