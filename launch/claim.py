"""One job a run folder: two that go on with the same one would write their rows between each other's.

The claim is the kernel's lock on the folder, so that nothing of it stays behind when a job is killed. It holds between
the processes of a host, and between hosts where their file system passes locks on (NFS 4, Lustre with `flock`).
"""

import fcntl
import os
import time
from pathlib import Path

from scalescope.records.errors import UserError

_PATIENCE_S = 5.0  # a job that was killed a moment ago may still be going
_LOOK_S = 0.1
_held: dict[Path, int] = {}


def claim(folder: Path) -> None:
    """Keep a run folder for this process until `release`, or until it ends. Raises UserError where another has it.

    Where the file system knows no locks, nothing is kept from anybody.
    """
    path = folder.resolve()
    if path in _held:
        return
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return  # whoever writes there says what is wrong
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(handle)
                raise UserError(f"another job is writing {folder} right now; wait for its end, or choose another name"
                                ) from None  # fmt: skip
            time.sleep(_LOOK_S)
        except OSError:
            os.close(handle)
            return
        else:
            _held[path] = handle
            return


def release(folder: Path) -> None:
    """Give a run folder up, where this process has claimed it."""
    if (handle := _held.pop(folder.resolve(), None)) is not None:
        os.close(handle)
