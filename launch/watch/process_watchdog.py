"""A process beside each GPU's rank that ends it where none of its threads gets to run Python any more.

The progress watchdog's threads need Python's lock, and a thread inside a library may hold that for ever:
torch.compile's launcher keeps it while it hands a kernel to the device, and that call waits where the device's queue
is full, as it soon is behind a collective that hangs (pytorch#109074). Where all ranks stand so, none is left to find
it.

The rank's progress watchdog gives this process a heartbeat twice a second. It counts its own looks without one, not
the time: a job that was suspended as a whole is not late. Of a rank that it ends it keeps the stacks, which takes no
lock, and the reason.
"""

import faulthandler
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from scalescope.launch.watch.presence import STOPPED
from scalescope.records.package import importable

if TYPE_CHECKING:
    from scalescope.records.rows import EndedBy

_LOOK_S = 0.5
_STACKS_S = 2.0  # that a rank has to write its stacks
_DUMP = signal.SIGRTMAX  # asks it to


class ProcessWatchdog:
    """The rank's end: it gives the heartbeats."""

    def __init__(self, rank: int, folder: Path) -> None:
        beats, self._beats = os.pipe()
        stacks, self._stacks = os.pipe()
        os.set_blocking(self._beats, False)
        faulthandler.register(_DUMP, file=self._stacks, all_threads=True)  # runs without Python's lock
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

    def beat(self, at: str, limit_s: float) -> None:
        """Give a heartbeat from a point of the job: the next one comes within the limit."""
        with suppress(OSError):  # it has been ended, or has not looked for long
            os.write(self._beats, f"{limit_s} {at}\n".encode())

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
    missed, limit_s, at = 0, float("inf"), ""
    while os.getppid() == int(pid):
        if select.select([int(beats)], [], [], _LOOK_S)[0]:
            lines = os.read(int(beats), 1 << 16).decode(errors="replace").splitlines()
            if not lines or "end" in lines:
                return
            limit, _, at = lines[-1].partition(" ")
            missed, limit_s = 0, float(limit)
        elif not _is_stopped(int(pid)):  # somebody holds it, and may let it go on
            missed += 1
        if missed * _LOOK_S > limit_s:
            _end(int(stacks), rank, int(pid), Path(folder), at, limit_s)
            return


def _end(stacks: int, rank: str, pid: int, folder: Path, at: str, limit_s: float) -> None:
    message = (f"rank {rank} (process {pid} on {socket.gethostname()}) has run no Python for {limit_s:g} s: it waits "
             f"inside a library, last heard from at {at}")  # fmt: skip
    with suppress(OSError):
        os.kill(pid, _DUMP)
        kept = b""
        while select.select([stacks], [], [], _STACKS_S)[0] and (piece := os.read(stacks, 1 << 16)):
            kept += piece
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        (folder / "logs" / f"rank{rank}.hang.txt").write_bytes(kept)
    print(f"scalescope: {message}", file=sys.stderr, flush=True)
    try:
        note_end(folder, message, "hang")
    finally:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def note_end(folder: Path, message: str, ended_by: "EndedBy") -> None:
    """Write the reason down where nobody has written one."""
    from scalescope.records.errors import UserError  # read when it is needed: this process is a small one
    from scalescope.records.folder import RunFolder

    with suppress(UserError, OSError):  # a node without the run folder's file system
        if RunFolder(folder).read_info().status == "running":
            RunFolder(folder).set_status("failed", message, ended_by)


def _is_stopped(pid: int) -> bool:
    with suppress(psutil.Error):
        return psutil.Process(pid).status() in STOPPED
    return False
