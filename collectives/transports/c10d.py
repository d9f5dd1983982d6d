"""`transport=c10d`: torch.distributed, which is what training gets, with its dispatch on the host."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from scalescope.collectives.operations.operation import Call, NotAvailable
from scalescope.collectives.transports.rotation import IssuedBy, rotating

_REDUCTIONS = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.AVG,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "prod": dist.ReduceOp.PRODUCT,
}
# torch 2.13 renamed these and deprecates the old names
_all_gather: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter: Callable[..., Any] = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class C10dTransport:
    """The operations of one process group, each as a call with its buffers bound."""

    issued_by: IssuedBy = "python"
    compiled = None
    rotating = staticmethod(rotating)

    def __init__(self, group: dist.ProcessGroup, ranks: tuple[int, ...], device: torch.device) -> None:
        self._group = group
        self._ranks = ranks  # torch names roots and peers by their rank in the job
        self._rank = ranks.index(dist.get_rank())
        self._device = device

    def use(self, stream: torch.cuda.Stream) -> None:
        """Nothing to tell: torch.distributed follows the current stream."""

    def register(self, block: object) -> None:
        raise NotAvailable("torch.distributed is not told of symmetric windows here; use transport=direct")

    def close(self) -> None:
        """Nothing to free: who made the process group ends it."""

    def all_reduce(self, send: torch.Tensor, receive: torch.Tensor, reduction: str) -> Call:
        _same(send, receive, "all_reduce")
        return partial(dist.all_reduce, receive, op=_REDUCTIONS[reduction], group=self._group)

    def all_gather(self, send: torch.Tensor, receive: torch.Tensor) -> Call:
        return partial(_all_gather, receive, send, group=self._group)

    def reduce_scatter(self, send: torch.Tensor, receive: torch.Tensor, reduction: str) -> Call:
        return partial(_reduce_scatter, receive, send, op=_REDUCTIONS[reduction], group=self._group)

    def broadcast(self, send: torch.Tensor, receive: torch.Tensor, root: int) -> Call:
        _same(send, receive, "broadcast")
        return partial(dist.broadcast, receive, src=self._ranks[root], group=self._group)

    def reduce(self, send: torch.Tensor, receive: torch.Tensor, reduction: str, root: int) -> Call:
        _same(send, receive, "reduce")
        return partial(dist.reduce, receive, dst=self._ranks[root], op=_REDUCTIONS[reduction], group=self._group)

    def all_to_all(self, send: torch.Tensor, receive: torch.Tensor) -> Call:
        return partial(dist.all_to_all_single, receive, send, group=self._group)

    def gather(self, send: torch.Tensor, receive: torch.Tensor, root: int) -> Call:
        parts = list(receive.chunk(len(self._ranks))) if self._rank == root else None
        return partial(dist.gather, send, parts, dst=self._ranks[root], group=self._group)

    def scatter(self, send: torch.Tensor, receive: torch.Tensor, root: int) -> Call:
        parts = list(send.chunk(len(self._ranks))) if self._rank == root else None
        return partial(dist.scatter, receive, parts, src=self._ranks[root], group=self._group)

    def send_recv(self, send: torch.Tensor, receive: torch.Tensor, to: int, source: int) -> Call:
        pair = [
            dist.P2POp(dist.isend, send, self._ranks[to], group=self._group),
            dist.P2POp(dist.irecv, receive, self._ranks[source], group=self._group),
        ]

        def exchange() -> None:
            for work in dist.batch_isend_irecv(pair):
                work.wait()

        return exchange

    def barrier(self) -> Call:
        devices = [self._device.index] if self._device.type == "cuda" else None
        return partial(dist.barrier, group=self._group, device_ids=devices)


def _same(send: torch.Tensor, receive: torch.Tensor, name: str) -> None:
    if send.data_ptr() != receive.data_ptr():
        raise NotAvailable(f"torch.distributed's {name} works in place only")
