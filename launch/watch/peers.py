"""What the ranks of a job know of each other through its store: heartbeats, who has died or is lost, why the job ends.

Everything that asks the store raises RuntimeError where it has gone.
"""

import os
import time
from collections.abc import Iterable, Sequence

import msgspec
import torch.distributed as dist

from scalescope.launch.watch.abort_reason import AbortReason
from scalescope.launch.watch.presence import Heartbeat, heartbeat_of, process_state

_LOOKS = 4  # for lost ranks, in the time after which they are lost
_REASON = "reason"


class Peers:
    """One rank's heartbeat, and what it learns of the others'."""

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        # a connection of its own: the working thread may sit in a blocking call on the other
        self._store = dist.PrefixStore("watch", store.clone())  # type: ignore[attr-defined] # torch's stub lacks it
        self._rank = rank
        self._size = size
        self.own = heartbeat_of(os.getpid())
        self._neighbours: dict[int, Heartbeat] = {}  # the ranks of this host, this one left out
        self._heard: dict[int, tuple[int, float]] = {}  # a rank's last beat, and when it was new
        self._looked = time.monotonic()

    def join(self) -> None:
        """Say that this rank is of this host, and give the first heartbeat."""
        self._store.append(  # type: ignore[attr-defined] # torch's stub lacks it
            f"here/{self.own.space}", f"{self._rank} "
        )
        self.beat()

    def beat(self) -> None:
        self.own.count += 1
        self._store.set(str(self._rank), msgspec.json.encode(self.own).decode())

    def post(self, reason: AbortReason) -> AbortReason:
        """Write a reason where there is none, and return the one that stands."""
        return msgspec.json.decode(
            self._store.compare_set(_REASON, "", msgspec.json.encode(reason).decode()), type=AbortReason
        )

    def reason(self) -> AbortReason | None:
        """Return the reason that stands."""
        if not self._store.check([_REASON]):
            return None
        return msgspec.json.decode(self._store.get(_REASON), type=AbortReason)

    def heartbeats(self, ranks: Iterable[int]) -> dict[int, Heartbeat | None]:
        """Return each rank's last heartbeat; None of one that never gave any."""
        heartbeats: dict[int, Heartbeat | None] = {}
        for rank in ranks:
            known = self._store.check([str(rank)])
            heartbeats[rank] = msgspec.json.decode(self._store.get(str(rank)), type=Heartbeat) if known else None
        return heartbeats

    def neighbours(self) -> dict[int, Heartbeat]:
        """Return the first heartbeats of the other ranks of this host, as far as they are known; asks no store."""
        return self._neighbours.copy()  # another thread may be adding one

    def dead(self) -> set[int]:
        """Return the ranks of this host whose processes have ended, without having come to the job's end."""
        here = {int(rank) for rank in self._store.get(f"here/{self.own.space}").split()} - {self._rank}
        for rank, beat in self.heartbeats(here - self._neighbours.keys()).items():
            if beat is not None:
                self._neighbours[rank] = beat
        last = self.heartbeats(self.gone())
        return {rank for rank, beat in last.items() if beat is not None and not beat.left}

    def gone(self) -> dict[int, Heartbeat]:
        """Return the ranks of this host whose processes have ended, with their first heartbeats; asks no store."""
        return {rank: beat for rank, beat in self.neighbours().items() if process_state(beat) == "has died"}

    def stopped(self) -> set[int]:
        """Return the ranks of this host whose processes are stopped; asks no store."""
        return {rank for rank, beat in self.neighbours().items() if process_state(beat) == "is stopped"}

    def lost(self, lost_s: float) -> list[int]:
        """Return the ranks without a heartbeat for so long; rank 0 looks after all others, and rank 1 after rank 0."""
        now, every_s = time.monotonic(), lost_s / _LOOKS
        if self._rank > 1 or now < self._looked + every_s:
            return []
        if now > self._looked + 2 * every_s:  # this rank was itself held up: the others are given their time anew
            self._heard.clear()
        self._looked = now
        for rank, beat in self.heartbeats(range(1, self._size) if self._rank == 0 else (0,)).items():
            if beat is not None and beat.left:
                self._heard.pop(rank, None)
            elif beat is not None and self._heard.get(rank, (-1, now))[0] != beat.count:
                self._heard[rank] = (beat.count, now)
        return [rank for rank, (_, since) in self._heard.items() if now > since + lost_s]

    def deaths(self, dead: Sequence[int]) -> AbortReason:
        """Return that ranks have died."""
        message = "; ".join(
            f"rank {rank} ({beat}) has died, last heard from at {beat.name}"
            for rank, beat in self.heartbeats(dead).items()
            if beat
        )
        return AbortReason(self._rank, message, ended_by="lost_rank", silent=tuple(dead))

    def say_done(self) -> None:
        """Say that this rank has written what it had to."""
        self._store.set(f"done/{self._rank}", "1")

    def leaving(self) -> set[int]:
        """Return the ranks of this host that live, and neither are done nor have come to the job's end."""
        live = self.heartbeats(self.neighbours().keys() - self.gone().keys())
        ended = {rank for rank, beat in live.items() if beat is not None and beat.left}
        return {rank for rank in live.keys() - ended if not self._store.check([f"done/{rank}"])}

    def await_done(self, ranks: set[int], seconds: float) -> None:
        """Wait for so long until these ranks have said that they are done, or have died."""
        until = time.monotonic() + seconds
        present = {rank for rank, beat in self.heartbeats(ranks - {self._rank}).items() if beat is not None}
        while present and time.monotonic() < until:
            present = {rank for rank in present if not self._store.check([f"done/{rank}"])} - self.dead()
            time.sleep(0.05)
