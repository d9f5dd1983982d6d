"""What ROCm needs of a host: device files and their groups, kernel settings, container flags. Torch-free.

Everything is read below a root folder, so that a test can lay out a machine that it has not got.
"""

import grp
import os
from collections.abc import Mapping
from pathlib import Path

from scalescope.hardware.check_result import CheckResult, broken, fine, note

_IN_A_CONTAINER = "in a container: --device=/dev/kfd --device=/dev/dri"
_GROUPS = ("video", "render")  # which of the two owns a device file differs by distribution
_FILTERED = 2  # /proc/self/status, Seccomp: a filter is in force


def check_rocm(
    environ: Mapping[str, str], groups: set[str], root: Path = Path("/"), consumer: bool = False
) -> list[CheckResult]:
    """Say what ROCm needs of this host. `groups` are this user's; `consumer`: a device is a Radeon card."""
    return [
        *check_device_files(groups, root),
        *_kernel(root),
        *_container(root),
        *_variables(environ, consumer),
    ]


def check_device_files(groups: set[str], root: Path = Path("/")) -> list[CheckResult]:
    """Say whether the kernel driver's device files are there and may be opened: /dev/kfd and every render node."""
    if _is_wsl(root) and not (root / "dev/kfd").exists():
        if (root / "dev/dxg").exists():
            return [fine(str(root / "dev/dxg"), "WSL2: ROCm goes through it, and there is no /dev/kfd; amdsmi tells "
                         "nothing there")]  # fmt: skip
        return [broken(str(root / "dev/dxg"), "is missing: this WSL2 shows no GPU",
                       "update WSL and the Windows driver; in a container: --device=/dev/dxg")]  # fmt: skip
    kfd = root / "dev/kfd"
    render = sorted((root / "dev/dri").glob("renderD*"))
    findings = []
    if not kfd.exists():
        findings.append(broken(str(kfd), "is missing: the GPU is not passed in, or amdgpu is not loaded",
                               f"{_IN_A_CONTAINER}; else: modprobe amdgpu"))  # fmt: skip
    if not render:
        findings.append(broken(str(root / "dev/dri/renderD*"), "there is none: the GPU is not passed in",
                               _IN_A_CONTAINER))  # fmt: skip
    present = [path for path in (kfd, *render) if path.exists()]
    closed = [path for path in present if not os.access(path, os.R_OK | os.W_OK)]
    findings += [fine(str(path), "can be opened") for path in present if path not in closed]
    return findings + [_closed(path, groups) for path in closed]


def _closed(path: Path, groups: set[str]) -> CheckResult:
    number = path.stat().st_gid
    owner = _group_name(number)
    missing = owner if owner not in groups else " nor ".join(_GROUPS)
    return broken(
        str(path),
        f"may not be opened by this user: it belongs to group {owner}; this user's are {', '.join(sorted(groups))}",
        f"usermod -aG {','.join(_GROUPS)} $USER and log in anew; in a container: --group-add video --group-add "
        f"{number if missing == owner else 'render'} (the number: a container may not know the group by its name)",
    )


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _kernel(root: Path) -> list[CheckResult]:
    """Say which of the kernel's settings RCCL warns about at its start (rccl, src/init.cc)."""
    findings = []
    if _text(root / "proc/sys/kernel/numa_balancing") not in (None, "0"):
        findings.append(note("numa_balancing", "is on: it moves pages under running GPUs, and RCCL warns about it",
                             "sysctl kernel.numa_balancing=0"))  # fmt: skip
    command_line = _text(root / "proc/cmdline")
    on = any((root / "sys/class/iommu").glob("*"))
    if command_line is not None and on and "iommu=pt" not in command_line:
        findings.append(note("iommu", "is on without iommu=pt: peer-to-peer copies may be slow or hang",
                             "boot with iommu=pt; where peers do not reach each other, disable ACS on the bridges "
                             "between them as well"))  # fmt: skip
    return findings


def _container(root: Path) -> list[CheckResult]:
    """Say which of a container's restrictions RCCL runs into: it maps other ranks' memory."""
    if not any((root / name).exists() for name in (".dockerenv", "run/.containerenv")):
        return []
    status = (_text(root / "proc/self/status") or "").splitlines()
    mode = next((line.split()[-1] for line in status if line.startswith("Seccomp:")), "0")
    if mode != str(_FILTERED):
        return []
    return [note("container", "filters system calls (seccomp), which can keep ranks from mapping each other's memory",
                 "start it with --security-opt seccomp=unconfined --cap-add=SYS_PTRACE --ipc=host")]  # fmt: skip


def _variables(environ: Mapping[str, str], consumer: bool) -> list[CheckResult]:
    findings = []
    if environ.get("HSA_FORCE_FINE_GRAIN_PCIE") != "1" and consumer:
        findings.append(note("HSA_FORCE_FINE_GRAIN_PCIE", "is not set: RCCL wants it for peer-to-peer over PCIe",
                             "export HSA_FORCE_FINE_GRAIN_PCIE=1"))  # fmt: skip
    if "RCCL_MSCCL_ENABLE" in environ:
        findings.append(note("RCCL_MSCCL_ENABLE", "has no effect any more: MSCCL is gone from RCCL", "unset it"))
    return findings


def _is_wsl(root: Path) -> bool:
    return "microsoft" in (_text(root / "proc/version") or "").lower()


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
