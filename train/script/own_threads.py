"""Which threads of Python's own use a core beside the loop: whoever waits for a core may wait for one of these."""

import os
import threading
import time
from pathlib import Path

from scalescope.records.steps.busy_threads import LEAST_CORES, BusyThread

_TASKS = Path("/proc/self/task")
#: A thread's time on a core in user and in system mode, by their places behind its name in brackets.
_USER, _SYSTEM = 11, 12


class OwnThreads:
    """Made at the loop's begin, by its thread. Nothing is known where Linux does not tell."""

    def __init__(self) -> None:
        self._loop = threading.get_native_id()
        self._since_s = time.monotonic()
        self._before = self._cpu_s()

    def busy(self, rank: int) -> list[BusyThread]:
        """Return the threads that used a core since then, the busiest first; none that have ended."""
        took_s = time.monotonic() - self._since_s
        names = {one.native_id: one.name for one in threading.enumerate()}
        found = [
            BusyThread(rank=rank, name=names[number] or "", cores=(cpu_s - self._before.get(number, 0.0)) / took_s)
            for number, cpu_s in self._cpu_s().items()
            if number != self._loop and number in names and took_s > 0
        ]
        return sorted((one for one in found if one.cores >= LEAST_CORES), key=lambda one: -one.cores)

    def _cpu_s(self) -> dict[int, float]:
        found = {}
        for one in threading.enumerate():
            try:
                fields = (
                    (_TASKS / str(one.native_id) / "stat")
                    .read_text(encoding="utf-8", errors="replace")
                    .rpartition(")")[2]
                    .split()
                )
                found[one.native_id or 0] = (int(fields[_USER]) + int(fields[_SYSTEM])) / os.sysconf("SC_CLK_TCK")
            except (OSError, ValueError, IndexError):  # not Linux, or it has just ended
                continue
        return found
