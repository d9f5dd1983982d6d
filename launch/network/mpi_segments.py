"""Shared memory of MPI's own: MPICH leaves its segment in /dev/shm where a rank does not come to MPI's end."""

from contextlib import suppress
from pathlib import Path

_OWN = "/dev/shm/mpich_shm_"
_MAPS = Path("/proc/self/maps")


def unlink_segments() -> None:
    """Take the name from MPICH's segments that this process has mapped, once all ranks of its host have: nobody opens
    them any more, and their memory goes with the last rank, however that ends.
    """
    try:
        maps = _MAPS.read_text(encoding="utf-8", errors="replace")
    except OSError:  # no /proc: MPICH takes them away at its own end
        return
    for path in {line[line.index(_OWN) :] for line in maps.splitlines() if _OWN in line}:
        with suppress(OSError):  # another rank of this host was faster
            Path(path).unlink()
