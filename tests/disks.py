"""File systems of a few kilobytes or megabytes, for what has to survive a full one."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NONE = "a full disk is not tried: mounting a file system needs root"


@contextmanager
def mounted(place: Path, size: str) -> Iterator[bool]:
    """Mount a file system of so many bytes (`64k`, `4m`) at a folder; yields whether this user may."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "scalescope-test", str(place)]
    done = subprocess.run(mount, capture_output=True, timeout=30, check=False).returncode == 0
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", "--lazy", str(place)], timeout=30, check=True)
