"""What a rank says of itself to the others, and what has become of one that no longer says anything. Torch-free."""

import os
import signal
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

# fields of /proc/<pid>/stat after the name, see proc(5). psutil's create_time() is of the wall clock, which is set anew
# while a job runs: two readings of one process may differ
_STATE, _STARTED = 0, 19
_PROC = Path("/proc")

STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
LAUNCHER = "SCALESCOPE_LAUNCHER"  # the process that started this rank, where that was ours


class Heartbeat(msgspec.Struct):
    """A rank's sign of life: who it is, and how far it has come."""

    host: str
    pid: int
    space: str  # its process ids count within this namespace of this boot of this host
    started: int  # in clock ticks since the boot: with the pid, one process and no other
    count: int = 0
    marker: int = 0  # of progress, ordered: all ranks pass the same ones in the same order
    name: str = ""  # the marker as people read it
    waits: bool = False  # for others, at that place: as long as they need
    left: bool = False  # it has reached the end

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def heartbeat_of(pid: int) -> Heartbeat:
    """Return the first heartbeat of a process of this host that lives and is seen: this one."""
    return _first_heartbeat(pid, _stat(pid))


def seen_heartbeat(pid: int) -> Heartbeat | None:
    """Return the same of a process that may not be seen from here: a parent of another user or namespace."""
    fields = _stat(pid)
    return _first_heartbeat(pid, fields) if fields else None


def _first_heartbeat(pid: int, fields: list[str]) -> Heartbeat:
    return Heartbeat(host=socket.gethostname(), pid=pid, space=_space(), started=int(fields[_STARTED]))


def process_state(beat: Heartbeat) -> str | None:
    """Return `has died` or `is stopped` of a process on this host; None where it runs, or is not to be seen from here.

    A process of a container with ids of its own is not to be seen, though it may bear the same host name.
    """
    if not is_of_this_host(beat):
        return None
    fields = _stat(beat.pid)
    if not fields or int(fields[_STARTED]) != beat.started or fields[_STATE] in "ZX":
        return "has died"
    return "is stopped" if fields[_STATE] in "Tt" else None


def is_of_this_host(beat: Heartbeat) -> bool:
    """Return whether a process is to be seen from here."""
    return beat.space == _space()


def launcher_has_died() -> bool:
    """Return whether the process that started this rank has ended, as far as it was ours."""
    return os.environ.get(LAUNCHER, str(os.getppid())) != str(os.getppid())


def kill_stopped(heartbeats: Iterable[Heartbeat]) -> None:
    """End those of these processes that are stopped: their launcher would wait for them, half a minute or for ever."""
    for beat in heartbeats:
        if process_state(beat) == "is stopped":
            _kill(beat.pid)


def kill_stopped_sibling(rank: int) -> None:
    """End a stopped rank that this process's own launcher started, and that never came to speak for itself."""
    for sibling in psutil.Process(os.getppid()).children():
        with suppress(psutil.Error):  # it has gone by itself
            if sibling.status() in STOPPED and sibling.environ().get("RANK") == str(rank):
                sibling.kill()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:  # it has gone by itself
        return


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat after the command's name; none where there is no such process."""
    try:
        return (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _space() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').readlink()}"
    except OSError:  # no /proc to look into: nobody's state is seen
        return f"{socket.gethostname()}/{os.getpid()}"
