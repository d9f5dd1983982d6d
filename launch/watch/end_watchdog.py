"""A process that outlives the rank that starts it, and ends ranks of its host that are stopped at the job's end.

Behind the last marker no rank looks after another any more, and a launcher waits for a stopped process for ever; under
mpirun the others wait for it, too, inside MPI's own end. What was measured is written by then.

A job that is suspended as a whole, its launcher with it, is left alone.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from scalescope.launch.watch.presence import Heartbeat, process_state, seen_heartbeat
from scalescope.launch.watch.process_watchdog import note_end
from scalescope.records.package import importable

_LOOK_S = 0.2
_WATCHERS = 2  # ranks of a host that start one: the first may be the one that is stopped


class Ending(msgspec.Struct):
    """What such a process looks after."""

    folder: str
    ranks: dict[int, Heartbeat]  # of this host
    launcher: Heartbeat | None  # None where it is not to be seen: another user's, or outside of the container
    limit_s: float  # how long a rank may be stopped


def watch_end(folder: Path, rank: int, ranks: Mapping[int, Heartbeat], limit_s: float) -> None:
    """Start such a process, where this rank is among the first of its host and not the only one."""
    if len(ranks) < 2 or rank not in sorted(ranks)[:_WATCHERS]:
        return
    code = "import sys; from scalescope.launch.watch.end_watchdog import main; main(sys.argv[1])"
    with suppress(OSError):  # no memory or descriptors for a process more: the job's rows are written
        ending = Ending(str(folder), dict(ranks), seen_heartbeat(os.getppid()), limit_s)
        subprocess.Popen(
            [sys.executable, "-P", "-c", code, msgspec.json.encode(ending).decode()], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env=importable(os.environ),
        )  # fmt: skip


def main(wanted: str) -> None:
    """Look after the ranks until the last one has gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # are the ranks' to answer
        signal.signal(number, signal.SIG_IGN)
    ending = msgspec.json.decode(wanted, type=Ending)
    looks = dict.fromkeys(ending.ranks, 0)  # at which a rank was stopped; counted, not timed: this process may be, too
    while alive := {rank: beat for rank, beat in ending.ranks.items() if process_state(beat) != "has died"}:
        stopped = {rank for rank, beat in alive.items() if process_state(beat) == "is stopped"}
        if len(stopped) == len(alive) and ending.launcher and process_state(ending.launcher) == "is stopped":
            stopped = set()  # somebody holds the whole job
        looks = {rank: looks[rank] + 1 if rank in stopped else 0 for rank in alive}
        for rank in stopped:
            if looks[rank] * _LOOK_S > ending.limit_s:
                _end(ending, rank)
        time.sleep(_LOOK_S)


def _end(ending: Ending, rank: int) -> None:
    message = (f"rank {rank} ({ending.ranks[rank]}) was stopped at the job's end for {ending.limit_s:g} s, "
               "and has been ended")  # fmt: skip
    try:
        note_end(Path(ending.folder), message, "lost_rank")
    finally:
        with suppress(OSError):
            os.kill(ending.ranks[rank].pid, signal.SIGKILL)
