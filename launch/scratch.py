"""A folder for what the processes of a job leave in the machine's temporary folder, gone with the job.

Loading processes hand batches on by sockets, each in a folder `pymp-*` of its own that stays behind when such a process
is killed. Here a rank makes one folder for all of them before it starts any; it removes it as it ends, and whoever
started the ranks removes those of ranks that could not.
"""

import atexit
import os
import shutil
import tempfile
from multiprocessing import process
from pathlib import Path

from scalescope.launch.watch.presence import LAUNCHER

_PREFIX = "pymp-"  # as multiprocessing calls its own; short, since the path of a socket has room for 107 bytes


def share_scratch() -> Path:
    """Return the folder of this rank's loading processes, made at the first call. Call it before they are forked."""
    config = process.current_process()._config  # type: ignore[attr-defined]  # where multiprocessing looks first
    if config.get("tempdir") is None:
        owner = os.environ.get(LAUNCHER) or str(os.getpid())
        config["tempdir"] = tempfile.mkdtemp(prefix=f"{_PREFIX}{owner}-")
        atexit.register(_remove_own, config["tempdir"], os.getpid())
    return Path(config["tempdir"])


def _remove_own(folder: str, rank: int) -> None:
    if os.getpid() == rank:  # a loading process ends before its rank
        shutil.rmtree(folder, ignore_errors=True)


def remove_scratch() -> None:
    """Remove the folders of all ranks that this process has started."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{os.getpid()}-*"):
        shutil.rmtree(folder, ignore_errors=True)
