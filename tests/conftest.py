"""What tests of several files stand on."""

import signal
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

# a script's background job ignores Ctrl-C, and so would the jobs that tests start from one
signal.signal(signal.SIGINT, signal.default_int_handler)

_NONE = "a full disk is not tried: mounting a file system needs root"


@pytest.fixture
def small_disk_or_folder(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that a few megabytes fill; where this user may mount none, a folder."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "scalescope-test", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        yield place
        subprocess.run(["umount", "--lazy", str(place)], check=True)
    else:
        warnings.warn(_NONE, stacklevel=1)
        yield place


@pytest.fixture
def small_disk(small_disk_or_folder: Path) -> Path:
    """A file system of its own that a few megabytes fill; its test is skipped where none can be mounted."""
    if not small_disk_or_folder.is_mount():
        pytest.skip(_NONE)
    return small_disk_or_folder
