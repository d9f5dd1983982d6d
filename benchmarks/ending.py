"""Ending a benchmark's job with all that it has started: a rank that outlives it would go on beside the next one."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_PATIENCE_S = 10.0  # to end by itself; torchrun alone waits for its ranks for half a minute
_STARTED = 19  # the field of /proc/<pid>/stat after the command's name: with the pid, one process and no other


def end_with_all_below(process: "subprocess.Popen[Any]", patience_s: float = _PATIENCE_S) -> None:
    """End a process and everything below it, also ranks that are stopped or hang in a library."""
    below = _below(process.pid)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=patience_s)
    below |= _below(process.pid)  # what it started meanwhile; empty where it has gone
    process.kill()
    process.wait()
    until = time.monotonic() + patience_s
    while (left := {one for one in below if _started(one[0]) == one[1]}) and time.monotonic() < until:
        for pid, _ in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _below(pid: int) -> set[tuple[int, str]]:
    """Return every descendant with the moment of its start."""
    found: set[tuple[int, str]] = set()
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended meanwhile
            for child in map(int, children.read_text().split()):
                found |= {(child, _started(child)), *_below(child)}
    return found


def _started(pid: int) -> str:
    """Return when a process was started, in the kernel's ticks; nothing where there is none, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[_STARTED]
