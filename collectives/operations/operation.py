"""What a collective is, as a table that each file beside this one fills in. Torch-free.

S is the largest send or receive buffer of any rank. Sharded operations, which give every rank its own part, cut S
into n chunks; the others move all of S. A rank below is a rank in the group, not in the job.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from scalescope.records.operations import OperationFacts

Call = Callable[[], Any]
Tensor = Any  # whatever the transport moves: a torch tensor or a numpy array
#: Transports that never work in one buffer: their results have memory of their own.
OUT_OF_PLACE_ONLY = ("xla",)


class NotAvailable(Exception):
    """This transport cannot run this point; the message says why, and becomes the row's reason."""


class Transport(Protocol):
    """A way to the wires. Each method binds buffers and returns a call that runs the operation once."""

    def all_reduce(self, send: Tensor, receive: Tensor, reduction: str) -> Call: ...
    def all_gather(self, send: Tensor, receive: Tensor) -> Call: ...
    def reduce_scatter(self, send: Tensor, receive: Tensor, reduction: str) -> Call: ...
    def broadcast(self, send: Tensor, receive: Tensor, root: int) -> Call: ...
    def reduce(self, send: Tensor, receive: Tensor, reduction: str, root: int) -> Call: ...
    def all_to_all(self, send: Tensor, receive: Tensor) -> Call: ...
    def gather(self, send: Tensor, receive: Tensor, root: int) -> Call: ...
    def scatter(self, send: Tensor, receive: Tensor, root: int) -> Call: ...
    def send_recv(self, send: Tensor, receive: Tensor, to: int, source: int) -> Call: ...
    def barrier(self) -> Call: ...


@dataclass(frozen=True)
class Segment:
    """A run of elements that a rank must hold afterwards.

    They equal elements `offset…` of the pattern of one rank (`source`), or of all ranks' patterns reduced (None).
    """

    start: int
    length: int
    offset: int
    source: int | None


@dataclass(frozen=True)
class Bound:
    """One rank's buffers of one operation, ready to be run: what `Operation.run` is handed."""

    send: Tensor
    receive: Tensor
    rank: int
    size: int
    reduction: str
    root: int


@dataclass(frozen=True)
class Operation:
    """How one collective is run and checked. `chunk` counts elements: S / n where the operation is sharded, else S."""

    facts: OperationFacts
    run: Callable[[Transport, Bound], Call]
    expected: Callable[[int, int, int, int], list[Segment]]  # (chunk, rank, n, root)
    splits_send: bool = False  # the send buffer is n chunks long
    splits_receive: bool = False  # the receive buffer is n chunks long
    in_place: bool = True  # whether it can work in one buffer at all
    natural_mode: str = "in_place"  # what training calls: the mode that `auto` stands for
    misplaces_in_place: tuple[str, ...] = ()  # transports whose in-place form leaves the result elsewhere than others'
    waits_on_host: bool = False  # its call returns when it is done, which no captured graph can hold

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def moves_data(self) -> bool:
        return self.facts.moves_data

    def mode_of_training(self, transport: str) -> str:
        """Return the mode that `auto` stands for on a transport."""
        apart = transport in OUT_OF_PLACE_ONLY or transport in self.misplaces_in_place
        return "out_of_place" if apart else self.natural_mode

    def chunk_elements(self, size: int, itemsize: int, group_size: int) -> int:
        """Return the elements of a chunk for S near `size`, at least one, cut as nccl-tests cuts it.

        A chunk of a sharded operation is rounded down to 16 bytes where it is that long.
        """
        elements = max(1, size // itemsize)
        if not self.facts.sharded:
            return elements
        chunk = max(1, elements // group_size)
        aligned = chunk & -max(1, 16 // itemsize)
        return aligned or chunk

    def total_elements(self, chunk: int, group_size: int) -> int:
        """Return S in elements."""
        return chunk * group_size if self.facts.sharded else chunk

    def send_elements(self, chunk: int, group_size: int) -> int:
        return chunk * group_size if self.splits_send else chunk

    def receive_elements(self, chunk: int, group_size: int) -> int:
        return chunk * group_size if self.splits_receive else chunk

    def in_place_offsets(self, chunk: int, rank: int) -> tuple[int, int]:
        """Return where send and receive begin in the one buffer of the in-place form, in elements."""
        send = rank * chunk if self.splits_receive and not self.splits_send else 0
        receive = rank * chunk if self.splits_send and not self.splits_receive else 0
        return send, receive


def whole(chunk: int, source: int | None) -> list[Segment]:
    """Return the expectation of a rank that holds one whole buffer."""
    return [Segment(start=0, length=chunk, offset=0, source=source)]
