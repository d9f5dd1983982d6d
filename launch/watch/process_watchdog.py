"""A process beside each GPU's rank that ends it where none of its threads gets to run Python any more.

The progress watchdog's threads need Python's lock, and a thread inside a library may hold that for ever:
torch.compile's launcher keeps it while it hands a kernel to the device, and that call waits where the device's queue
is full, as it soon is behind a collective that hangs (pytorch#109074). Where all ranks stand so, none is left to find
it.

The rank's progress watchdog gives this process a heartbeat twice a second. It counts its own looks without one, not
the time: a job that was suspended as a whole is not late. At each it looks at the processes of the host's other ranks,
since one that is stopped, or has died, is why the rest wait: it is named first, after the patience that a stopped rank
has from a rank that runs. Of a rank that it ends it keeps the stacks, which takes no lock, and the reason, and ends
what is stopped: a launcher would wait for that half a minute more.
"""

import faulthandler
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil

from scalescope.launch.watch.presence import STOPPED, Heartbeat, kill_stopped, process_state
from scalescope.records.package import importable

if TYPE_CHECKING:
    from scalescope.records.rows import EndedBy

_LOOK_S = 0.5
_STACKS_S = 2.0  # that a rank has to write its stacks
_DUMP = signal.SIGRTMAX  # asks it to
_DEATH_S = 10.0  # without Python beside a rank that has died: the job is over, and its launcher waits for this rank
_SOON_S = 2.0  # after another rank's end, a rank that falls silent waits for that one
_AT_ONCE = 8  # other ranks that a heartbeat tells of: a pipe takes 4096 B whole


class _Beat(msgspec.Struct):
    """What a rank says of itself twice a second."""

    at: str
    limit_s: float  # until it says so again, whatever the others do
    lost_s: float | None = None  # that it may be silent while another rank is stopped; None: this one is leaving
    others: dict[int, Heartbeat] = {}  # ranks of this host, those that it has not told of before


class ProcessWatchdog:
    """The rank's end: it gives the heartbeats."""

    def __init__(self, rank: int, folder: Path) -> None:
        beats, self._beats = os.pipe()
        stacks, self._stacks = os.pipe()
        os.set_blocking(self._beats, False)
        faulthandler.register(_DUMP, file=self._stacks, all_threads=True)  # runs without Python's lock
        self._told: set[int] = set()
        code = "import sys; from scalescope.launch.watch.process_watchdog import main; main(*sys.argv[1:])"
        arguments = (str(beats), str(stacks), str(rank), str(os.getpid()), str(folder))
        try:
            # ended by itself once the rank has gone: the pipe ends, or the parent changes
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", code, *arguments], pass_fds=(beats, stacks), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, env=importable(os.environ),
            )  # fmt: skip
        finally:
            os.close(beats)
            os.close(stacks)

    def beat(self, at: str, limit_s: float, lost_s: float | None, others: Mapping[int, Heartbeat]) -> None:
        """Give a heartbeat from a point of the job: the next one comes within the limit.

        `lost_s`: it comes within that, too, while one of the others on this host is stopped; None where this rank leaves.
        """
        new = dict(islice(((rank, beat) for rank, beat in others.items() if rank not in self._told), _AT_ONCE))
        with suppress(OSError):  # it has been ended, or has not looked for long
            os.write(self._beats, msgspec.json.encode(_Beat(at, limit_s, lost_s, new)) + b"\n")
            self._told.update(new)

    def dismiss(self) -> None:
        """Let it go, and wait until it has."""
        faulthandler.unregister(_DUMP)
        with suppress(OSError):
            os.write(self._beats, b"end\n")
        os.close(self._beats)
        os.close(self._stacks)
        self._process.wait()


@dataclass
class _Silence:
    """What is seen while a rank says nothing."""

    last: _Beat
    others: dict[int, Heartbeat] = field(default_factory=dict)
    looks: int = 0  # since it spoke last
    states: dict[int, tuple[str, int]] = field(default_factory=dict)  # of the others, and for how many of these looks

    def hear(self, beat: _Beat) -> None:
        self.last, self.looks, self.states = beat, 0, {}
        self.others.update(beat.others)

    def look(self) -> None:
        self.looks += 1
        states = {rank: process_state(beat) for rank, beat in self.others.items()}
        self.states = {
            rank: (state, self.states.get(rank, ("", 0))[1] + 1) for rank, state in states.items() if state is not None
        }

    @property
    def seconds(self) -> float:
        return self.looks * _LOOK_S

    def is_over(self) -> bool:
        """Return whether the rank is to be ended."""
        lost_s = self.last.lost_s
        if self.seconds > self.last.limit_s or lost_s is None:
            return self.seconds > self.last.limit_s
        stopped_s = max((looks for state, looks in self.states.values() if state == "is stopped"), default=0) * _LOOK_S
        died = any(state == "has died" for state, _ in self.states.values())
        return stopped_s > lost_s or (died and self.seconds > min(lost_s, _DEATH_S))

    def causes(self) -> list[int]:
        """Return the other ranks that were stopped or dead when this one fell silent, or nearly so."""
        return [rank for rank, (_, looks) in sorted(self.states.items()) if self.looks - looks <= _SOON_S / _LOOK_S]

    def words(self, rank: str, pid: int) -> str:
        """Return who keeps the job from going on: what came first is said first."""
        became = {other: f"rank {other} ({self.others[other]}) {state}" for other, (state, _) in self.states.items()}
        first = self.causes()
        own = f"rank {rank} (process {pid} on {socket.gethostname()})"
        if first:
            own += f" waits for {'it' if len(first) == 1 else 'them'} inside a library, without Python"
        else:
            own += " has run no Python"
        own += f" for {int(self.seconds)} s{'' if first else ': it waits inside a library'}, "
        own += f"last heard from at {self.last.at}"
        later = [became[other] for other in sorted(became) if other not in first]
        return "; ".join([*(became[other] for other in first), own, *later])


def main(beats: str, stacks: str, rank: str, pid: str, folder: str) -> None:
    """Look after a rank until it dismisses this process or has gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # are the rank's to answer
        signal.signal(number, signal.SIG_IGN)
    silence = _Silence(_Beat("", float("inf")))
    while os.getppid() == int(pid):
        if select.select([int(beats)], [], [], _LOOK_S)[0]:
            lines = os.read(int(beats), 1 << 16).splitlines()
            if not lines or b"end" in lines:
                return
            for line in lines:
                silence.hear(msgspec.json.decode(line, type=_Beat))
        elif not _is_stopped(int(pid)):  # somebody holds it, and may let it go on
            silence.look()
        if silence.is_over():
            _end(int(stacks), rank, int(pid), Path(folder), silence)
            return


def _end(stacks: int, rank: str, pid: int, folder: Path, silence: _Silence) -> None:
    message = silence.words(rank, pid)
    try:
        if note_end(folder, message, "lost_rank" if silence.causes() else "hang"):
            print(f"scalescope: {message}", file=sys.stderr, flush=True)
        with suppress(OSError):
            _keep_stacks(stacks, pid, folder / "logs" / f"rank{rank}.hang.txt")
    finally:
        kill_stopped(silence.others.values())
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _keep_stacks(stacks: int, pid: int, path: Path) -> None:
    os.kill(pid, _DUMP)
    kept = b""
    while select.select([stacks], [], [], _STACKS_S)[0] and (piece := os.read(stacks, 1 << 16)):
        kept += piece
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(kept)


def note_end(folder: Path, message: str, ended_by: "EndedBy") -> bool:
    """Write the reason down where nobody has written one; returns whether it is this one that people are to be told."""
    from scalescope.records.errors import UserError  # read when it is needed: this process is a small one
    from scalescope.records.folder import RunFolder

    try:
        with _alone(folder):
            if RunFolder(folder).read_info().status != "running":
                return False
            RunFolder(folder).set_status("failed", message, ended_by)
    except (UserError, OSError):  # a node without the run folder's file system
        return True
    return True


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep the other ranks' processes from writing their reasons: they find the same at the same time."""
    handle = None
    try:
        with suppress(OSError):  # a file system without locks. The lock on the run folder itself is the job's
            (folder / "logs").mkdir(parents=True, exist_ok=True)
            handle = os.open(folder / "logs", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _is_stopped(pid: int) -> bool:
    with suppress(psutil.Error):
        return psutil.Process(pid).status() in STOPPED
    return False
