"""A process beside each GPU's rank that ends it where none of its threads gets to run Python any more.

The progress watchdog's threads need Python's lock, and a thread inside a library may hold that for ever:
torch.compile's launcher keeps it while it hands a kernel to the device, and that call waits where the device's queue
is full, as it soon is behind a collective that hangs (pytorch#109074). Where all ranks stand so, none is left to find
it.

The rank's progress watchdog gives this process a heartbeat twice a second. Without one it looks at the processes of the
host's other ranks: one that is stopped, or has died, is why the rest wait. Of a rank that it ends it keeps the stacks,
which takes no lock, and the reason, and it ends what is stopped: a launcher would wait for that half a minute more.
"""

import faulthandler
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil

from scalescope.launch.watch.presence import STOPPED, Heartbeat, kill_stopped
from scalescope.launch.watch.silence import LOOK_S, Beat, Silence
from scalescope.records.package import importable

if TYPE_CHECKING:
    from scalescope.records.rows import EndedBy

_STACKS_S = 2.0  # that a rank has to write its stacks
_DUMP = signal.SIGRTMAX  # asks it to
_WRITING_S = 1.0  # that another one may take to write its reason
_AT_ONCE = 8  # other ranks that a heartbeat tells of: a pipe takes 4096 B whole


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

        `lost_s`: within that while one of the others on this host is stopped; None where this rank leaves.
        """
        new = dict(islice(((rank, beat) for rank, beat in others.items() if rank not in self._told), _AT_ONCE))
        with suppress(OSError):  # it has been ended, or has not looked for long
            os.write(self._beats, msgspec.json.encode(Beat(at, limit_s, lost_s, new)) + b"\n")
            self._told.update(new)

    def dismiss(self) -> None:
        """Let it go, and wait until it has."""
        faulthandler.unregister(_DUMP)
        with suppress(OSError):
            os.write(self._beats, b"end\n")
        os.close(self._beats)
        os.close(self._stacks)
        self._process.wait()


def main(beats: str, stacks: str, rank: str, pid: str, folder: str) -> None:
    """Look after a rank until it dismisses this process or has gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # are the rank's to answer
        signal.signal(number, signal.SIG_IGN)
    silence = Silence()
    while os.getppid() == int(pid):
        if select.select([int(beats)], [], [], LOOK_S)[0]:
            lines = os.read(int(beats), 1 << 16).splitlines()
            if not lines or b"end" in lines:
                return
            for line in lines:
                silence.hear(msgspec.json.decode(line, type=Beat))
        elif not _is_stopped(int(pid)):  # somebody holds it, and may let it go on
            silence.look()
        if silence.is_over():
            _end(int(stacks), rank, int(pid), Path(folder), silence)
            return


def _end(stacks: int, rank: str, pid: int, folder: Path, silence: Silence) -> None:
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
            _lock(handle)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _lock(handle: int) -> None:
    until = time.monotonic() + _WRITING_S
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:  # it was held up itself: two reasons are better than none
                return None
            time.sleep(0.02)


def _is_stopped(pid: int) -> bool:
    with suppress(psutil.Error):
        return psutil.Process(pid).status() in STOPPED
    return False
