"""Whether a collective's result is right: every element of one separate operation, against a pattern of each rank.

Element i of rank r is a whole number, small enough that the sum over all ranks is exact in the element type,
whatever the order of the additions. So a right result equals the expected one bit for bit, and only an average
over a number of ranks that is no power of two is allowed its rounding.
"""

from collections.abc import Mapping

import torch

from scalescope.collectives.dtypes import DTYPES, DType
from scalescope.collectives.operations import OPERATIONS
from scalescope.collectives.operations.operation import Bound, Segment
from scalescope.collectives.plan import PlannedPoint

# The pattern repeats after a prime number of elements, so that data misplaced by any round number shows.
_PERIOD = 1_048_573
_POISON = 0xFF
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Check:
    """The patterns of one group on one device; tiles are made once an element type and reduction."""

    def __init__(
        self, size: int, device: torch.device, longest: int, computed_as: Mapping[str, DType] | None = None
    ) -> None:
        """Prepare for a group of `size` ranks and buffers of `longest` elements at most.

        `computed_as` has the types whose bits the device takes for another's.
        """
        self._size = size
        self._dtypes = {**DTYPES, **(computed_as or {})}
        self._device = device
        self._period = min(_PERIOD, longest)
        self._tiles: dict[tuple[str, str | None, int | None], torch.Tensor] = {}

    def prepare(self, point: PlannedPoint, io: Bound) -> None:
        """Fill a rank's send buffer with its pattern, and what it will receive with nonsense."""
        if not OPERATIONS[point.operation].moves_data:
            return
        io.receive.view(torch.uint8).fill_(_POISON)
        tile = self._tile(point.dtype, point.reduction, io.rank)
        for at, piece in self._pieces(Segment(0, io.send.numel(), 0, io.rank), tile):
            bits = _BITS[piece.element_size()]
            io.send.view(bits)[at : at + piece.numel()].copy_(piece.view(bits))

    def count_wrong(self, point: PlannedPoint, io: Bound) -> int:
        """Return how many of this rank's received elements differ from what they must be."""
        operation = OPERATIONS[point.operation]
        if not operation.moves_data:
            return 0
        chunk = io.send.numel() // (io.size if operation.splits_send else 1)
        wrong = torch.zeros((), dtype=torch.int64, device=self._device)
        for segment in operation.expected(chunk, io.rank, io.size, io.root):
            tile = self._tile(point.dtype, point.reduction, segment.source)
            for at, piece in self._pieces(segment, tile):
                wrong += self._differing(io.receive[at : at + piece.numel()], piece, point)
        return int(wrong.item())

    def _differing(self, received: torch.Tensor, expected: torch.Tensor, point: PlannedPoint) -> torch.Tensor:
        if point.reduction == "avg" and expected.is_floating_point() and self._size & (self._size - 1):
            share = min(self._size * torch.finfo(expected.dtype).eps, 0.5)  # of coarse types it would forgive a zero
            slack = share * expected.float().abs()
            return (~((received.view(expected.dtype).float() - expected.float()).abs() <= slack)).sum()
        bits = _BITS[expected.element_size()]
        return (received.view(bits) != expected.view(bits)).sum()

    def _tile(self, dtype: str, reduction: str | None, source: int | None) -> torch.Tensor:
        """Return one period of a rank's pattern, or (None) of the reduction of all ranks' patterns."""
        key = (dtype, reduction, source)
        if key not in self._tiles:
            if source is not None:
                values = self._values(source, self._dtypes[dtype], reduction)
            else:
                values = self._reduced(self._dtypes[dtype], reduction or "sum")
            self._tiles[key] = values.to(getattr(torch, self._dtypes[dtype].name))
        return self._tiles[key]

    def _reduced(self, dtype: DType, reduction: str) -> torch.Tensor:
        total = self._values(0, dtype, reduction)
        for rank in range(1, self._size):
            other = self._values(rank, dtype, reduction)
            if reduction in ("sum", "avg"):
                total = total + other
            elif reduction == "prod":
                total = total * other
            else:
                total = torch.minimum(total, other) if reduction == "min" else torch.maximum(total, other)
        if reduction != "avg":
            return total
        # integers are divided after the sum and truncated
        return total.double() / self._size if getattr(torch, dtype.name).is_floating_point else total // self._size

    def _values(self, rank: int, dtype: DType, reduction: str | None) -> torch.Tensor:
        """Return one period of a rank's pattern as int64: position and rank are hashed to whole numbers."""
        position = torch.arange(self._period, dtype=torch.int64, device=self._device)
        hashed = ((position * 2_654_435_761 + (rank + 1) * 97_829_387) >> 7) & 0xFFFFFF
        if reduction == "prod":  # ones, and as many twos over all ranks as the type's exponent carries
            stride = -(-self._size // dtype.power)
            return torch.where((position + rank) % stride == 0, 1 + hashed % 2, 1)
        share = dtype.exact if reduction in (None, "min", "max") else dtype.exact // self._size
        if share == 0:  # more ranks than the type can count: only every so-many-th rank gives a one
            stride = -(-self._size // dtype.exact)
            return torch.where((position + rank) % stride == 0, hashed % 2, 0)
        return hashed % min(max(share, 2), 1 << 20)  # below `share`, so that a byte is never the poison

    def _pieces(self, segment: Segment, tile: torch.Tensor) -> list[tuple[int, torch.Tensor]]:
        """Return where each stretch of a segment lies in its buffer, with the tile's stretch that belongs there."""
        pieces = []
        done = 0
        while done < segment.length:
            begin = (segment.offset + done) % self._period
            length = min(self._period - begin, segment.length - done)
            pieces.append((segment.start + done, tile[begin : begin + length]))
            done += length
        return pieces
