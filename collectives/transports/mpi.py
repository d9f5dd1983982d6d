"""`transport=mpi`: MPI on host buffers, through mpi4py; for ranks that mpirun or srun started."""

from functools import partial
from typing import Any

import torch

from scalescope.collectives.operations.operation import Call, NotAvailable
from scalescope.collectives.transports.overlap import overlap
from scalescope.collectives.transports.rotation import IssuedBy, rotating

_TYPES = {  # by torch's name, MPI's; others can be moved as bytes, but not reduced
    torch.float32: "FLOAT",
    torch.float64: "DOUBLE",
    torch.int8: "INT8_T",
    torch.uint8: "UINT8_T",
    torch.int32: "INT32_T",
    torch.int64: "INT64_T",
}
_REDUCTIONS = {"sum": "SUM", "min": "MIN", "max": "MAX", "prod": "PROD"}


def refusal(rank: int, size: int, source: str, device: torch.device) -> str | None:
    """Return why this rank cannot go this way, or None where it can."""
    if source not in ("mpi", "slurm"):
        return f"transport=mpi needs ranks that mpirun started, and these came from {source}"
    if device.type != "cpu":
        return "transport=mpi moves host buffers; start it with launch.device=cpu"
    from mpi4py import MPI

    if (MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()) != (rank, size):
        return "mpi4py's MPI library counts other ranks than the launcher; use the mpirun of the same installation"
    return None


class MpiTransport:
    """One MPI communicator, and its operations with their buffers bound."""

    issued_by: IssuedBy = "python"
    compiled = None
    rotating = staticmethod(rotating)

    def __init__(self, ranks: tuple[int, ...]) -> None:
        from mpi4py import MPI  # importing it starts MPI, which only ranks of an MPI job should

        self._mpi = MPI
        self._group = MPI.COMM_WORLD.Get_group().Incl(list(ranks))
        self._communicator = MPI.COMM_WORLD.Create_group(self._group)
        self._rank = self._communicator.Get_rank()

    def use(self, stream: object) -> None:
        """Host buffers know no stream."""

    def register(self, block: object) -> None:
        raise NotAvailable("MPI is not told of symmetric windows here; use transport=direct")

    def close(self) -> None:
        self._communicator.Free()
        self._group.Free()

    def all_reduce(self, send: torch.Tensor, receive: torch.Tensor, reduction: str) -> Call:
        sent = self._mpi.IN_PLACE if overlap(send, receive) else self._typed(send)
        return partial(self._communicator.Allreduce, sent, self._typed(receive), op=self._operator(reduction))

    def all_gather(self, send: torch.Tensor, receive: torch.Tensor) -> Call:
        sent = self._mpi.IN_PLACE if overlap(send, receive) else self._bytes(send)
        return partial(self._communicator.Allgather, sent, self._bytes(receive))

    def reduce_scatter(self, send: torch.Tensor, receive: torch.Tensor, reduction: str) -> Call:
        if overlap(send, receive):
            raise NotAvailable("MPI's reduce_scatter in place leaves each rank's part elsewhere than the others do")
        sent, received = self._typed(send), self._typed(receive)
        return partial(self._communicator.Reduce_scatter_block, sent, received, op=self._operator(reduction))

    def broadcast(self, send: torch.Tensor, receive: torch.Tensor, root: int) -> Call:
        if not overlap(send, receive):
            raise NotAvailable("MPI's broadcast works in place only")
        return partial(self._communicator.Bcast, self._bytes(receive), root=root)

    def reduce(self, send: torch.Tensor, receive: torch.Tensor, reduction: str, root: int) -> Call:
        in_place = overlap(send, receive) and self._rank == root
        sent = self._mpi.IN_PLACE if in_place else self._typed(send)
        received = self._typed(receive) if self._rank == root else None
        return partial(self._communicator.Reduce, sent, received, op=self._operator(reduction), root=root)

    def all_to_all(self, send: torch.Tensor, receive: torch.Tensor) -> Call:
        return partial(self._communicator.Alltoall, self._bytes(send), self._bytes(receive))

    def gather(self, send: torch.Tensor, receive: torch.Tensor, root: int) -> Call:
        at_root = self._rank == root
        sent = self._mpi.IN_PLACE if at_root and overlap(send, receive) else self._bytes(send)
        return partial(self._communicator.Gather, sent, self._bytes(receive) if at_root else None, root=root)

    def scatter(self, send: torch.Tensor, receive: torch.Tensor, root: int) -> Call:
        at_root = self._rank == root
        received = self._mpi.IN_PLACE if at_root and overlap(send, receive) else self._bytes(receive)
        return partial(self._communicator.Scatter, self._bytes(send) if at_root else None, received, root=root)

    def send_recv(self, send: torch.Tensor, receive: torch.Tensor, to: int, source: int) -> Call:
        sent, received = self._bytes(send), self._bytes(receive)
        return partial(self._communicator.Sendrecv, sent, dest=to, recvbuf=received, source=source)

    def barrier(self) -> Call:
        return self._communicator.Barrier

    def _typed(self, tensor: torch.Tensor) -> list[Any]:
        if tensor.dtype not in _TYPES:
            raise NotAvailable(f"MPI cannot reduce {tensor.dtype}")
        return [tensor.view(torch.uint8).numpy(), getattr(self._mpi, _TYPES[tensor.dtype])]

    def _bytes(self, tensor: torch.Tensor) -> list[Any]:
        return [tensor.view(torch.uint8).numpy(), self._mpi.BYTE]

    def _operator(self, reduction: str) -> Any:
        if reduction not in _REDUCTIONS:
            raise NotAvailable(f"MPI has no reduction {reduction}")
        return getattr(self._mpi, _REDUCTIONS[reduction])
