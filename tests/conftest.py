"""What tests of several files stand on."""

import gc
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is loaded: tests share the cores already
os.environ.setdefault("SCALESCOPE_STRICT", "1")  # a finding whose figures cannot be raises, in whatever test

import pytest

from tests import disks

# a script's background job ignores Ctrl-C, and so would the jobs that tests start from one
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection() -> None:
    gc.disable()  # what is loaded for tests is never let go, and looking through it for circles takes seconds


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(100_000)  # as the command line's: else looking through traces for circles takes a sixth of a test
    gc.enable()


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """What a test's calls set for processes of their own (PYTHONSAFEPATH, threads) reaches no other test's."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


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
