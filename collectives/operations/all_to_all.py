"""all_to_all: rank r ends with chunk r of every rank, in rank order."""

from scalescope.collectives.operations.operation import Operation, Segment
from scalescope.records.operations import OPERATION_FACTS

ALL_TO_ALL = Operation(
    facts=OPERATION_FACTS["all_to_all"],
    run=lambda transport, io: transport.all_to_all(io.send, io.receive),
    expected=lambda chunk, rank, n, root: [Segment(peer * chunk, chunk, rank * chunk, peer) for peer in range(n)],
    splits_send=True,
    splits_receive=True,
    in_place=False,
    natural_mode="out_of_place",
)
