"""One launch, all group sizes: groups take turns, and a rank outside the group at work waits on the store.

Waiting on the store costs a look every few milliseconds on the host; no device is touched, so that an idle rank
takes no link, no multiprocessor and no power from those that measure.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

import msgspec
import torch.distributed as dist

from collectives.config import SweepConfig
from collectives.messages import Messages, form
from collectives.paths.c10d import C10dPath
from collectives.plan import Group
from launch.job import Job
from records.rows import SweepRow

_LOOK_S = 0.01


@dataclass(frozen=True)
class Member:
    """One rank's place in the group at work."""

    messages: Messages
    path: C10dPath


@contextmanager
def turn(job: Job[SweepConfig], group: Group) -> Iterator[Member | None]:
    """Give this rank its place in the group whose turn it is, or None where it is outside.

    Every rank of the job enters, since torch forms a group with all of them.
    """
    everyone = len(group.ranks) == job.world.size
    timeout_s = job.config.launch.timeout_s
    host_group = job.host_group if everyone else form(group.ranks, timeout_s)
    process_group = _communicator(group, everyone, timeout_s)
    if job.world.rank not in group.ranks:
        yield None
        return
    path = C10dPath(process_group, group.ranks, job.device)
    try:
        yield Member(messages=Messages(host_group, group.ranks, job.world.rank), path=path)
    finally:
        path.close()
    if not everyone:
        dist.destroy_process_group(process_group)
        dist.destroy_process_group(host_group)


class Rows:
    """How rows get from a group's first rank to rank 0, which alone writes them."""

    def __init__(self, job: Job[SweepConfig], group: Group) -> None:
        self._store = dist.PrefixStore(f"sweep/{group.index}", job.store)
        self._by_store = job.world.rank != 0 or 0 not in group.ranks  # else rank 0 measures, and has them at hand

    def send(self, number: int, row: SweepRow) -> None:
        """Hand a row to rank 0."""
        self._store.set(f"row/{number}", msgspec.json.encode(row))

    def receive(self, number: int) -> SweepRow:
        """Wait for a row of a group that rank 0 is outside of."""
        _await(self._store, f"row/{number}")
        return msgspec.json.decode(self._store.get(f"row/{number}"), type=SweepRow)

    def finish(self) -> None:
        """Say that the group's turn is over."""
        self._store.set("done", b"1")

    def await_finish(self) -> None:
        """Wait until it is; for ranks outside the group."""
        _await(self._store, "done")


def _communicator(group: Group, everyone: bool, timeout_s: float) -> dist.ProcessGroup:
    # the default group spans everyone and has its communicator already
    if everyone:
        return cast(dist.ProcessGroup, dist.group.WORLD)
    return cast(dist.ProcessGroup, dist.new_group(list(group.ranks), timeout=timedelta(seconds=timeout_s)))


def _await(store: dist.Store, key: str) -> None:
    # looking now and then instead of a blocking wait: Ctrl-C gets through, and the store stays free for others
    while not store.check([key]):
        time.sleep(_LOOK_S)
