"""`transport=direct`: the collective library itself, on the same buffers, without torch.distributed's dispatch.

A call is bound once to its C arguments, and a row of calls is issued from C, so that it costs what the library's own
enqueueing costs.
"""

import ctypes
from collections.abc import Iterable, Sequence

import torch

from scalescope.collectives.operations.operation import NotAvailable
from scalescope.collectives.transports.issue import Enqueue, Grouping, Issuer, LibraryCall
from scalescope.collectives.transports.library import Library
from scalescope.collectives.transports.messages import Messages
from scalescope.collectives.transports.refused import RefusedTransport
from scalescope.collectives.transports.rotation import IssuedBy, Run, rotating

# ncclDataType_t and ncclRedOp_t, the same numbers in NCCL and RCCL
_DTYPES = {
    torch.int8: 0,
    torch.uint8: 1,
    torch.int32: 2,
    torch.int64: 4,
    torch.float16: 6,
    torch.float32: 7,
    torch.float64: 8,
    torch.bfloat16: 9,
    torch.float8_e4m3fn: 10,
    torch.float8_e5m2: 11,
}
_REDUCTIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}


def refusal(device: torch.device) -> str | None:
    """Return why this rank cannot go this way, or None where it can."""
    if device.type != "cuda":
        return "transport=direct calls the GPU's collective library, and these ranks run on CPUs"
    try:
        Library()
    except NotAvailable as reason:
        return str(reason)
    return None


def open_transport(
    messages: Messages, device: torch.device, channels: int | None, policy: str | None = None
) -> "DirectTransport | RefusedTransport":
    """Return this way with a communicator of its own, or, on every rank alike, a closed one with the reason of one."""
    transport: DirectTransport | None = None
    reason = refusal(device) or (Library().policy_refusal() if policy is not None else None)
    if not (reasons := list(filter(None, messages.texts(reason)))):
        try:
            transport = DirectTransport(messages, device, channels, policy)
        except RuntimeError as error:
            reason = f"the library makes no communicator{'' if channels is None else f' of {channels} CTAs'}: {error}"
        reasons = list(filter(None, messages.texts(reason)))
    return RefusedTransport(reasons[0]) if transport is None or reasons else transport


class DirectTransport:
    """One communicator of the library's own, and its operations with their buffers bound.

    Making it raises RuntimeError where the library refuses what the communicator is told.
    """

    compiled = None

    def __init__(
        self, messages: Messages, device: torch.device, channels: int | None = None, policy: str | None = None
    ) -> None:
        self._library = Library()
        self._rank, self._size = messages.rank, messages.size
        issuer = Issuer.find()
        # all ranks or none: a figure is that of the slowest way among them
        self._issuer = issuer if messages.least(int(issuer is not None)) else None
        self.issued_by: IssuedBy = "python" if self._issuer is None else "c"
        self._stream = ctypes.c_void_p()
        self.use(torch.cuda.current_stream(device))
        unique_id = messages.share_bytes(self._library.new_unique_id() if messages.leads else None)
        # last, since it may be refused on one rank, which then has nothing more to tell the others
        self._communicator = self._library.join(unique_id, messages.rank, messages.size, channels, policy)
        self._windows: list[ctypes.c_void_p] = []

    def use(self, stream: torch.cuda.Stream) -> None:
        """Let every call, also those bound already, run on this stream."""
        self._stream.value = stream.cuda_stream

    def rotating(self, operations: Sequence[Enqueue]) -> Run:
        """Return a function that enqueues so many operations, going round the buffers that they are bound to."""
        if self._issuer is None:
            return rotating(operations)
        return self._issuer.rotating(operations, self._stream)

    def register(self, block: torch.Tensor) -> None:
        """Make memory of the library's own allocator, as much on every rank, a symmetric window.

        Raises RuntimeError where the library refuses it.
        """
        self._windows.append(self._library.register_window(self._communicator, block.data_ptr(), block.numel()))

    def close(self) -> None:
        torch.cuda.synchronize()
        for window in self._windows:
            self._library.deregister_window(self._communicator, window)
        self._library.leave(self._communicator)

    def all_reduce(self, send: torch.Tensor, receive: torch.Tensor, reduction: str) -> Enqueue:
        return self._alone("ncclAllReduce", _at(send), _at(receive), _count(send), *_typed(send, reduction))

    def all_gather(self, send: torch.Tensor, receive: torch.Tensor) -> Enqueue:
        return self._alone("ncclAllGather", _at(send), _at(receive), _count(send), _dtype(send))

    def reduce_scatter(self, send: torch.Tensor, receive: torch.Tensor, reduction: str) -> Enqueue:
        return self._alone("ncclReduceScatter", _at(send), _at(receive), _count(receive), *_typed(send, reduction))

    def broadcast(self, send: torch.Tensor, receive: torch.Tensor, root: int) -> Enqueue:
        return self._alone("ncclBroadcast", _at(send), _at(receive), _count(send), _dtype(send), ctypes.c_int(root))

    def reduce(self, send: torch.Tensor, receive: torch.Tensor, reduction: str, root: int) -> Enqueue:
        arguments = (_at(send), _at(receive), _count(send), *_typed(send, reduction), ctypes.c_int(root))
        return self._alone("ncclReduce", *arguments)

    def all_to_all(self, send: torch.Tensor, receive: torch.Tensor) -> Enqueue:
        if self._library.has("ncclAlltoAll"):  # since NCCL 2.28
            count = ctypes.c_size_t(send.numel() // self._size)
            return self._alone("ncclAlltoAll", _at(send), _at(receive), count, _dtype(send))
        parts = zip(send.chunk(self._size), receive.chunk(self._size), strict=True)
        return self._together(
            call
            for peer, (out, into) in enumerate(parts)
            for call in (self._send(out, peer), self._receive(into, peer))
        )

    def gather(self, send: torch.Tensor, receive: torch.Tensor, root: int) -> Enqueue:
        calls = [self._send(send, root)]
        if self._rank == root:
            calls += [self._receive(part, peer) for peer, part in enumerate(receive.chunk(self._size))]
        return self._together(calls)

    def scatter(self, send: torch.Tensor, receive: torch.Tensor, root: int) -> Enqueue:
        calls = [self._receive(receive, root)]
        if self._rank == root:
            calls += [self._send(part, peer) for peer, part in enumerate(send.chunk(self._size))]
        return self._together(calls)

    def send_recv(self, send: torch.Tensor, receive: torch.Tensor, to: int, source: int) -> Enqueue:
        return self._together([self._send(send, to), self._receive(receive, source)])

    def barrier(self) -> Enqueue:
        raise NotAvailable("the library has no barrier of its own")

    def _send(self, part: torch.Tensor, peer: int) -> LibraryCall:
        return self._call("ncclSend", _at(part), _count(part), _dtype(part), ctypes.c_int(peer))

    def _receive(self, part: torch.Tensor, peer: int) -> LibraryCall:
        return self._call("ncclRecv", _at(part), _count(part), _dtype(part), ctypes.c_int(peer))

    def _call(self, name: str, *arguments: object) -> LibraryCall:
        function = getattr(self._library.functions, name)
        return LibraryCall(function, (*arguments, self._communicator, self._stream))

    def _alone(self, name: str, *arguments: object) -> Enqueue:
        return Enqueue((self._call(name, *arguments),), None, self._library.check)

    def _together(self, calls: Iterable[LibraryCall]) -> Enqueue:
        """Return an operation of several calls: the library matches sends with receives inside a group."""
        functions = self._library.functions
        grouping = Grouping(functions.ncclGroupStart, functions.ncclGroupEnd)
        return Enqueue(tuple(calls), grouping, self._library.check)


def _at(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _count(tensor: torch.Tensor) -> ctypes.c_size_t:
    return ctypes.c_size_t(tensor.numel())


def _dtype(tensor: torch.Tensor) -> ctypes.c_int:
    return ctypes.c_int(_DTYPES[tensor.dtype])


def _typed(tensor: torch.Tensor, reduction: str) -> tuple[ctypes.c_int, ctypes.c_int]:
    return _dtype(tensor), ctypes.c_int(_REDUCTIONS[reduction])
