"""What a rank's child processes compute while it trains: a loader's workers, which may have the cores it waits for.

And other children, such as a program that the script started: they are no workers, however much they compute.
Looked at outside of all steps that are timed: a list of processes takes milliseconds to make.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import process
from pathlib import Path

import psutil

from scalescope.records.steps.worker_times import LEAST_CORES, ChildTime, WorkerTime

#: What Python's multiprocessing starts has such words in its command line, where it does not fork the script itself.
_STARTED_ANEW = ("--multiprocessing-fork", "multiprocessing.forkserver", "multiprocessing.spawn")


@dataclass(frozen=True)
class _Child:
    """What is known of a child process at a moment, s."""

    cpu_s: float
    age_s: float
    command: str | None  # of the child that it descends from; None: a loader's worker
    delay_s: float  # ready to run while others had the cores


@dataclass(frozen=True)
class _Seen:
    """What is known of all child processes at a moment, s."""

    at_s: float
    ended_s: float = math.nan  # used by those that have ended, of any kind
    living: Mapping[int, _Child] = field(default_factory=dict)
    whole: bool = False  # each one that lives is known, and what those used that have ended

    @property
    def workers(self) -> dict[int, _Child]:
        return {pid: one for pid, one in self.living.items() if one.command is None}


class OwnWorkers:
    """Made behind the first step, when a loader has started its workers."""

    def __init__(self) -> None:
        self._processes = 0
        self._took_s = self._same_s = self._delay_s = 0.0
        self._cpu_s: dict[str | None, float] = {}  # by command; of workers by None
        self._since: _Seen | None = None
        self._first_ended_s: float | None = None
        self._had_none = True  # as far as was looked
        self.go_on()

    def go_on(self) -> None:
        """Begin a stretch of steps."""
        self._since = self._look()

    def pause(self) -> None:
        """End it: what follows is recorded, and while traces are written workers have nothing to do."""
        if self._since is None:
            return
        before, now = self._since, self._look()
        self._took_s += now.at_s - before.at_s
        self._add(None, 0.0 * (now.ended_s - before.ended_s))  # where nothing tells of them, nothing is told
        for pid, one in now.living.items():
            self._add(one.command, one.cpu_s - (before.living[pid].cpu_s if pid in before.living else 0.0))
        for command, cpu_s in _ended_s(before, now).items():
            self._add(command, cpu_s)
        if now.workers.keys() == before.workers.keys():  # what those waited that have ended nobody tells
            self._same_s += now.at_s - before.at_s
            self._delay_s += sum(one.delay_s for one in now.workers.values())
            self._delay_s -= sum(one.delay_s for one in before.workers.values())
        self._since = None

    def _add(self, command: str | None, cpu_s: float) -> None:
        self._cpu_s[command] = self._cpu_s.get(command, 0.0) + cpu_s

    def worked(self, rank: int) -> WorkerTime | None:
        """Return what workers used in all stretches; None where there are none, or nothing tells."""
        self.pause()
        cpu_s = self._cpu_s.get(None, math.nan)
        if self._processes == 0 or self._took_s <= 0 or not math.isfinite(cpu_s):
            return None
        waiting = self._delay_s / self._same_s if self._same_s > 0 else math.nan
        return WorkerTime(
            rank=rank,
            processes=self._processes,
            cores=max(0.0, cpu_s) / self._took_s,
            waiting=max(0.0, waiting) if math.isfinite(waiting) else None,
        )

    def had_none(self) -> bool:
        """Tell whether there was no worker whenever it was looked, and no child ended that may have been one; False
        where nothing tells.
        """
        self.pause()
        return self._took_s > 0 and self._had_none

    def others(self, rank: int) -> list[ChildTime]:
        """Return what each command used, in all stretches, that a rank started and that is no worker."""
        self.pause()
        if self._took_s <= 0:
            return []
        used = {command: cpu_s / self._took_s for command, cpu_s in self._cpu_s.items() if command is not None}
        return [
            ChildTime(rank=rank, name=name, cores=cores) for name, cores in used.items() if cores >= LEAST_CORES
        ]  # fmt: skip

    def _look(self) -> _Seen:
        seen = _children()
        self._processes = max(self._processes, len(seen.workers))
        if self._first_ended_s is None:
            self._first_ended_s = seen.ended_s
        # of what came and went between two looks only its time is known, and not what it was
        self._had_none &= seen.whole and not seen.workers and seen.ended_s == self._first_ended_s
        return seen


def _ended_s(before: _Seen, now: _Seen) -> dict[str | None, float]:
    """Return by command what children used that have ended meanwhile: of all these together alone it is known.

    Those that were there before share it as they used cores until then. Of others nobody knows what they were: of
    workers where some came, as where each epoch starts them anew.
    """
    gone = {pid: one for pid, one in before.living.items() if pid not in now.living}
    ended_s = now.ended_s - before.ended_s - sum(one.cpu_s for one in gone.values())
    pace = {pid: one.cpu_s / one.age_s for pid, one in gone.items() if one.age_s > 0}
    if not sum(pace.values()):
        return {None: ended_s} if before.workers.keys() != now.workers.keys() else {}
    shares: dict[str | None, float] = {}
    for pid, cores in pace.items():
        shares[gone[pid].command] = shares.get(gone[pid].command, 0.0) + ended_s * cores / sum(pace.values())
    return shares


def _children() -> _Seen:
    now_s = time.monotonic()
    try:
        own = psutil.Process()
        ended, living, command = own.cpu_times(), own.children(recursive=True), own.cmdline()
        parents = {one.pid: one.ppid() for one in living if one.is_running()}
    except psutil.Error:  # one has just ended
        return _Seen(now_s)
    by_multiprocessing = {one.pid for one in getattr(process, "_children", ())}
    found = {}
    for one in living:
        try:
            told, age_s = one.cpu_times(), time.time() - one.create_time()
            first = psutil.Process(_eldest(one.pid, parents))
            is_worker = first.pid in by_multiprocessing or _is_worker(first.cmdline(), command)
            name = None if is_worker else first.name()
        except psutil.Error:  # it has just ended
            continue
        cpu_s = told.user + told.system + told.children_user + told.children_system
        found[one.pid] = _Child(cpu_s, age_s, name, _delay_s(one.pid))
    whole = psutil.LINUX and len(found) == len(living)  # elsewhere nothing tells of those that have ended
    return _Seen(now_s, ended.children_user + ended.children_system, found, whole)


def _eldest(pid: int, parents: Mapping[int, int]) -> int:
    """Return the child of this process that a process descends from: what that one is, all of its own are."""
    while (parent := parents.get(pid)) in parents and parent is not None:
        pid = parent
    return pid


def _is_worker(command: Sequence[str], own: Sequence[str]) -> bool:
    """Tell whether a child is a fork of this program, or what multiprocessing starts anew; another one runs a command
    of its own.
    """
    return list(command) == list(own) or any(word in one for one in command for word in _STARTED_ANEW)


def _delay_s(pid: int) -> float:
    """Return for how long a process's first thread was ready to run without a core; NaN where nothing tells."""
    try:
        return int((Path("/proc") / str(pid) / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return math.nan
