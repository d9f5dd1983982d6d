"""`path=direct`: the collective library itself, on the same buffers, without torch.distributed's dispatch.

A call is bound once to its C arguments, so that running it costs little more than the library's own enqueueing.
"""

import ctypes
from collections.abc import Callable, Iterable
from functools import partial

import torch

from collectives.messages import Messages
from collectives.operations.operation import Call, NotAvailable
from collectives.paths.library import Library

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
        return "path=direct calls the GPU's collective library, and these ranks run on CPUs"
    try:
        Library()
    except NotAvailable as reason:
        return str(reason)
    return None


class DirectPath:
    """One communicator of the library's own, and its operations with their buffers bound."""

    def __init__(self, messages: Messages, device: torch.device, channels: int | None = None) -> None:
        self._library = Library()
        self._rank, self._size = messages.rank, messages.size
        unique_id = messages.share_bytes(self._library.new_unique_id() if messages.leads else None)
        self._communicator = self._library.join(unique_id, messages.rank, messages.size, channels)
        self._stream = ctypes.c_void_p()
        self.use(torch.cuda.current_stream(device))

    def use(self, stream: torch.cuda.Stream) -> None:
        """Let every call, also those bound already, run on this stream."""
        self._stream.value = stream.cuda_stream

    def close(self) -> None:
        torch.cuda.synchronize()
        self._library.leave(self._communicator)

    def all_reduce(self, send: torch.Tensor, receive: torch.Tensor, reduction: str) -> Call:
        return self._call("ncclAllReduce", _at(send), _at(receive), _count(send), *_typed(send, reduction))

    def all_gather(self, send: torch.Tensor, receive: torch.Tensor) -> Call:
        return self._call("ncclAllGather", _at(send), _at(receive), _count(send), _dtype(send))

    def reduce_scatter(self, send: torch.Tensor, receive: torch.Tensor, reduction: str) -> Call:
        return self._call("ncclReduceScatter", _at(send), _at(receive), _count(receive), *_typed(send, reduction))

    def broadcast(self, send: torch.Tensor, receive: torch.Tensor, root: int) -> Call:
        return self._call("ncclBroadcast", _at(send), _at(receive), _count(send), _dtype(send), ctypes.c_int(root))

    def reduce(self, send: torch.Tensor, receive: torch.Tensor, reduction: str, root: int) -> Call:
        arguments = (_at(send), _at(receive), _count(send), *_typed(send, reduction), ctypes.c_int(root))
        return self._call("ncclReduce", *arguments)

    def all_to_all(self, send: torch.Tensor, receive: torch.Tensor) -> Call:
        if self._library.has("ncclAlltoAll"):  # since NCCL 2.28
            count = ctypes.c_size_t(send.numel() // self._size)
            return self._call("ncclAlltoAll", _at(send), _at(receive), count, _dtype(send))
        parts = zip(send.chunk(self._size), receive.chunk(self._size), strict=True)
        return self._together(
            call
            for peer, (out, into) in enumerate(parts)
            for call in (self._send(out, peer), self._receive(into, peer))
        )

    def gather(self, send: torch.Tensor, receive: torch.Tensor, root: int) -> Call:
        calls = [self._send(send, root)]
        if self._rank == root:
            calls += [self._receive(part, peer) for peer, part in enumerate(receive.chunk(self._size))]
        return self._together(calls)

    def scatter(self, send: torch.Tensor, receive: torch.Tensor, root: int) -> Call:
        calls = [self._receive(receive, root)]
        if self._rank == root:
            calls += [self._send(part, peer) for peer, part in enumerate(send.chunk(self._size))]
        return self._together(calls)

    def send_recv(self, send: torch.Tensor, receive: torch.Tensor, to: int, source: int) -> Call:
        return self._together([self._send(send, to), self._receive(receive, source)])

    def barrier(self) -> Call:
        raise NotAvailable("the library has no barrier of its own")

    def _send(self, part: torch.Tensor, peer: int) -> Call:
        return self._call("ncclSend", _at(part), _count(part), _dtype(part), ctypes.c_int(peer))

    def _receive(self, part: torch.Tensor, peer: int) -> Call:
        return self._call("ncclRecv", _at(part), _count(part), _dtype(part), ctypes.c_int(peer))

    def _call(self, name: str, *arguments: object) -> Call:
        function = getattr(self._library.functions, name)
        return partial(_run, self._library.check, partial(function, *arguments, self._communicator, self._stream))

    def _together(self, calls: Iterable[Call]) -> Call:
        """Return a call that runs several as one: the library matches sends with receives inside a group."""
        members = tuple(calls)
        start, end = self._library.functions.ncclGroupStart, self._library.functions.ncclGroupEnd
        check = self._library.check

        def run() -> None:
            check(start())
            for call in members:
                call()
            check(end())

        return run


def _run(check: Callable[[int], None], function: Callable[[], int]) -> None:
    if result := function():
        check(result)


def _at(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _count(tensor: torch.Tensor) -> ctypes.c_size_t:
    return ctypes.c_size_t(tensor.numel())


def _dtype(tensor: torch.Tensor) -> ctypes.c_int:
    return ctypes.c_int(_DTYPES[tensor.dtype])


def _typed(tensor: torch.Tensor, reduction: str) -> tuple[ctypes.c_int, ctypes.c_int]:
    return _dtype(tensor), ctypes.c_int(_REDUCTIONS[reduction])
