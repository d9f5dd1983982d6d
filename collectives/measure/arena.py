"""The memory that a group's points share, and the buffers that each point cuts from it.

One allocation serves every size, and consecutive operations rotate through it, so that small messages do not sit in
a cache that real training would have emptied.
"""

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil
import torch

from scalescope.collectives.dtypes import DTYPES
from scalescope.collectives.operations import OPERATIONS
from scalescope.collectives.operations.operation import Bound
from scalescope.collectives.plan import PlannedPoint
from scalescope.collectives.transports.library import Library
from scalescope.collectives.transports.messages import Messages

Allocate = Callable[[int], torch.Tensor | None]  # None where it does not fit

_ALIGNMENT = 128  # bytes between slots: one cache line of a GPU
_SLOTS = 64  # at 1 MiB that is more than any GPU's cache


class Arena:
    """One block of device memory, large enough for the points that fit on every rank of the group."""

    def __init__(self, block: torch.Tensor) -> None:
        self._block = block

    @property
    def block(self) -> torch.Tensor:
        return self._block

    @property
    def bytes(self) -> int:
        return self._block.numel()

    @classmethod
    def reserve(
        cls, points: Iterable[PlannedPoint], allocate: Allocate, device: torch.device, messages: Messages
    ) -> "Arena":
        """Allocate for the largest point that fits on every rank; the ranks agree, so larger ones fit nowhere."""
        block = torch.empty(0, dtype=torch.uint8, device=device)
        for need in sorted({bytes_needed(point) for point in points}, reverse=True):
            tried = allocate(need)
            if messages.least(int(tried is not None)):
                block = tried if tried is not None else block
                break
            del tried
        # small positive numbers in every float type: all-zero data would flatter the power draw
        return cls(block.random_(0, 64))

    def holds(self, point: PlannedPoint) -> bool:
        return bytes_needed(point) <= self.bytes

    def buffers(self, point: PlannedPoint, rank: int) -> list[Bound]:
        """Return the point's buffers in every slot, in the order operations rotate through them."""
        operation = OPERATIONS[point.operation]
        n = point.group_size
        if not operation.moves_data:
            return [Bound(None, None, rank, n, "", 0)]
        dtype: torch.dtype = getattr(torch, point.dtype)
        itemsize = DTYPES[point.dtype].itemsize
        chunk = point.bytes // itemsize // (n if operation.facts.sharded else 1)
        sends, receives = operation.send_elements(chunk, n), operation.receive_elements(chunk, n)
        stride = _aligned(bytes_needed(point))
        bound = []
        for slot in range(max(1, min(_SLOTS, self.bytes // stride))):
            base = self._block[slot * stride :]
            if point.mode == "in_place":
                whole = base[: point.bytes].view(dtype)
                send_at, receive_at = operation.in_place_offsets(chunk, rank)
                send, receive = whole[send_at : send_at + sends], whole[receive_at : receive_at + receives]
            else:
                send = base[: sends * itemsize].view(dtype)
                receive = base[_aligned(sends * itemsize) :][: receives * itemsize].view(dtype)
            bound.append(Bound(send, receive, rank, n, point.reduction or "", point.root or 0))
        return bound


def bytes_needed(point: PlannedPoint) -> int:
    """Return what a point needs of each rank's memory."""
    operation = OPERATIONS[point.operation]
    if not operation.moves_data or point.mode == "in_place":
        return point.bytes
    part = point.bytes // point.group_size
    sends = part if operation.facts.sharded and not operation.splits_send else point.bytes
    receives = part if operation.facts.sharded and not operation.splits_receive else point.bytes
    return _aligned(sends) + receives


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def from_torch(device: torch.device, local_ranks: int) -> Allocate:
    """Return torch's allocator, as training uses it; `local_ranks` share the memory of this host."""

    def allocate(size: int) -> torch.Tensor | None:
        if device.type == "cpu" and size * local_ranks > _free_host_bytes():
            return None  # the kernel would hand it out, and end the process when it is touched
        try:
            return torch.empty(size, dtype=torch.uint8, device=device)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return None
        except RuntimeError as error:  # the CPU allocator's own
            if "allocate memory" not in str(error):
                raise
            return None

    return allocate


def from_library(device: torch.device) -> Allocate:
    """Return the collective library's allocator, as nccl-tests uses it: other ranks can map what it gives."""
    library = Library()

    def allocate(size: int) -> torch.Tensor | None:
        torch.cuda.empty_cache()  # what torch holds back is not free for others
        block = library.allocate(size) if size else None
        return torch.as_tensor(block, device=device) if block is not None else None

    return allocate


def _free_host_bytes() -> int:
    """Return what this machine or this container has left, whichever is less."""
    free = [int(psutil.virtual_memory().available)]
    with contextlib.suppress(OSError, ValueError):  # "max" is no number: no limit
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8"))
        free.append(limit - int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="utf-8")))
    return min(free)
