"""What several tests stand on is made once in a session, whichever of xdist's processes asks first."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` has filled; other processes of the session wait for it, and get the same one.

    Tests share it: whoever changes something in it takes a copy. Where `make` fails, the next one tries again.
    """
    own = factory.getbasetemp()  # a process's own under xdist, and then its parent is the session's
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "made_once" / name
    folder.parent.mkdir(exist_ok=True)
    done = folder.with_name(f"{name}.done")
    with FileLock(folder.with_name(f"{name}.lock")):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder
