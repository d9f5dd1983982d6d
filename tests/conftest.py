"""What tests of several files stand on."""

import signal
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import disks

# a script's background job ignores Ctrl-C, and so would the jobs that tests start from one
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def small_disk_or_folder(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that a few megabytes fill; where this user may mount none, a folder."""
    place = tmp_path / "disk"
    place.mkdir()
    with disks.mounted(place, "4m") as done:
        if not done:
            warnings.warn(disks.NONE, stacklevel=1)
        yield place


@pytest.fixture
def small_disk(small_disk_or_folder: Path) -> Path:
    """A file system of its own that a few megabytes fill; its test is skipped where none can be mounted."""
    if not small_disk_or_folder.is_mount():
        pytest.skip(disks.NONE)
    return small_disk_or_folder
