"""What a rank's child processes compute while it trains: a loader's workers, which may have the cores it waits for.

Looked at outside of all steps that are timed: a list of processes takes milliseconds to make.
"""

import math
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from scalescope.records.steps.worker_times import WorkerTime


class _Seen(NamedTuple):
    """What is known of all child processes at a moment, s."""

    at_s: float
    cpu_s: float  # of those that have ended, too
    delay_s: float  # ready to run while others had the cores: of those that live
    living: frozenset[int]


class OwnWorkers:
    """Made behind the first step, when a loader has started its workers."""

    def __init__(self) -> None:
        self._processes = 0
        self._took_s = self._cpu_s = self._same_s = self._delay_s = 0.0
        self._since: _Seen | None = None
        self.go_on()

    def go_on(self) -> None:
        """Begin a stretch of steps."""
        self._since = self._look()

    def pause(self) -> None:
        """End it: what follows is recorded, and while traces are written workers have nothing to do."""
        if self._since is not None:
            before, now = self._since, self._look()
            self._took_s += now.at_s - before.at_s
            self._cpu_s += now.cpu_s - before.cpu_s
            if now.living == before.living:  # what those waited that have ended nobody tells
                self._same_s += now.at_s - before.at_s
                self._delay_s += now.delay_s - before.delay_s
            self._since = None

    def worked(self, rank: int) -> WorkerTime | None:
        """Return what they used in all stretches; None where there are none, or nothing tells."""
        self.pause()
        if self._processes == 0 or self._took_s <= 0 or not math.isfinite(self._cpu_s):
            return None
        waiting = self._delay_s / self._same_s if self._same_s > 0 else math.nan
        return WorkerTime(
            rank=rank,
            processes=self._processes,
            cores=max(0.0, self._cpu_s) / self._took_s,
            waiting=max(0.0, waiting) if math.isfinite(waiting) else None,
        )

    def _look(self) -> _Seen:
        seen = _children()
        self._processes = max(self._processes, len(seen.living))
        return seen


def _children() -> _Seen:
    now_s = time.monotonic()
    try:
        own = psutil.Process()
        ended, living = own.cpu_times(), own.children(recursive=True)
    except psutil.Error:
        return _Seen(now_s, math.nan, math.nan, frozenset())
    cpu_s, delay_s, pids = ended.children_user + ended.children_system, 0.0, set()
    for one in living:
        try:
            told = one.cpu_times()
        except psutil.Error:  # it has just ended
            continue
        pids.add(one.pid)
        cpu_s += told.user + told.system + told.children_user + told.children_system
        delay_s += _delay_s(one.pid)
    return _Seen(now_s, cpu_s, delay_s, frozenset(pids))


def _delay_s(pid: int) -> float:
    """Return for how long a process's first thread was ready to run without a core; NaN where nothing tells."""
    try:
        return int((Path("/proc") / str(pid) / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return math.nan
