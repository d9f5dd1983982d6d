"""How long a rank has run no Python, and what became of the host's other ranks meanwhile. Torch-free.

A rank that is stopped, or has died, is why the others wait: it is named first, after the patience that a rank which
runs has with it. Silence is counted in looks, not timed: a job that was suspended as a whole is not late.
"""

import socket

import msgspec

from scalescope.launch.watch.presence import Heartbeat, process_state

LOOK_S = 0.5
_DEATH_S = 10.0  # without Python beside a rank that has died: the job is over, and its launcher waits for this rank
_SOON = 4  # looks between another rank's end and the silence of one that waits for it


class Beat(msgspec.Struct):
    """What a rank says of itself twice a second."""

    at: str
    limit_s: float  # until it says so again, whatever the others do
    lost_s: float | None = None  # the same while another rank is stopped; None where this one is leaving
    others: dict[int, Heartbeat] = {}  # ranks of this host, those that it has not told of before


class Silence:
    """What is seen of a rank's host since the rank's last heartbeat."""

    def __init__(self) -> None:
        self.others: dict[int, Heartbeat] = {}
        self._last = Beat("", float("inf"))
        self._looks = 0
        self._states: dict[int, str] = {}  # of the other ranks that are stopped or dead
        self._since: dict[int, int] = {}  # the first look at which each of them was

    def hear(self, beat: Beat) -> None:
        """Begin anew: the rank has spoken."""
        self._last, self._looks, self._since = beat, 0, {}
        self.others.update(beat.others)

    def look(self) -> None:
        """Look at the other ranks' processes, where the rank has not spoken."""
        self._looks += 1
        states = {rank: process_state(beat) for rank, beat in sorted(self.others.items())}
        self._states = {rank: state for rank, state in states.items() if state is not None}
        self._since = {rank: self._since.get(rank, self._looks) for rank in self._states}

    def is_over(self) -> bool:
        """Return whether the rank is to be ended."""
        silent_s, lost_s = self._looks * LOOK_S, self._last.lost_s
        if silent_s > self._last.limit_s:
            return True
        if lost_s is None or not self._since:
            return False
        together_s = max((self._looks - since + 1) * LOOK_S for since in self._since.values())
        return together_s > lost_s or ("has died" in self._states.values() and silent_s > min(lost_s, _DEATH_S))

    def causes(self) -> list[int]:
        """Return the other ranks that were stopped or dead when this one fell silent, or nearly so."""
        return [rank for rank, since in self._since.items() if since <= _SOON + 1]

    def words(self, rank: str, pid: int) -> str:
        """Return what keeps the job from going on: what came first is said first."""
        became = {other: f"rank {other} ({self.others[other]}) {state}" for other, state in self._states.items()}
        first = self.causes()
        own, silent = f"rank {rank} (process {pid} on {socket.gethostname()})", f"{int(self._looks * LOOK_S)} s"
        if first:
            them = "it" if len(first) == 1 else "them"
            own += f" waits for {them} inside a library and has run no Python for {silent}"
        else:
            own += f" has run no Python for {silent}: it waits inside a library"
        own += f", last heard from at {self._last.at}"
        return "; ".join([*(became.pop(other) for other in first), own, *became.values()])
