"""Small messages among the ranks of a group, on the host: they touch no device and no measured communicator."""

from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist


class Messages:
    """What the ranks of one group tell each other between measurements. The group's first rank leads."""

    def __init__(self, group: dist.ProcessGroup, ranks: tuple[int, ...], rank: int) -> None:
        self._group = group
        self._ranks = ranks
        self.rank = ranks.index(rank)
        self.size = len(ranks)

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def gather(self, values: list[float]) -> list[list[float]] | None:
        """Return every rank's values, by rank, on the leader; None on the others. All give equally many."""
        own = torch.tensor(values, dtype=torch.float64)
        parts = [torch.empty_like(own) for _ in self._ranks] if self.leads else None
        dist.gather(own, parts, dst=self._ranks[0], group=self._group)
        return [part.tolist() for part in parts] if parts is not None else None

    def tell(self, number: int) -> int:
        """Return the leader's number on every rank: rank 0 decides for all."""
        carried = torch.tensor([number], dtype=torch.int64)
        dist.broadcast(carried, src=self._ranks[0], group=self._group)
        return int(carried.item())

    def share(self, number: float) -> float:
        """Return the leader's number, exact, on every rank."""
        carried = torch.tensor([number], dtype=torch.float64)
        dist.broadcast(carried, src=self._ranks[0], group=self._group)
        return float(carried.item())

    def total(self, number: int) -> int:
        """Return the sum of every rank's number, on every rank."""
        carried = torch.tensor([number], dtype=torch.int64)
        dist.all_reduce(carried, group=self._group)
        return int(carried.item())

    def least(self, number: int) -> int:
        """Return the smallest of every rank's numbers, on every rank."""
        carried = torch.tensor([number], dtype=torch.int64)
        dist.all_reduce(carried, op=dist.ReduceOp.MIN, group=self._group)
        return int(carried.item())

    def texts(self, text: str | None) -> list[str | None]:
        """Return every rank's text, on every rank."""
        if self.total(text is not None) == 0:  # the common case costs one small message
            return [None] * self.size
        texts: list[str | None] = [None] * self.size
        dist.all_gather_object(texts, text, group=self._group)
        return texts

    def share_bytes(self, content: bytes | None) -> bytes:
        """Return the leader's bytes on every rank."""
        carried = [content]
        dist.broadcast_object_list(carried, src=self._ranks[0], group=self._group)
        return cast(bytes, carried[0])


def form(
    ranks: tuple[int, ...], timeout_s: float, backend: str | None = None, options: object = None
) -> dist.ProcessGroup:
    """Return the process group of these ranks; every rank of the job must call it. None is the job's own backend."""
    group = dist.new_group(list(ranks), backend=backend, timeout=timedelta(seconds=timeout_s), pg_options=options)
    return cast(dist.ProcessGroup, group)
