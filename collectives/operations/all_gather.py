"""all_gather: every rank ends with the chunks of all ranks, in rank order."""

from scalescope.collectives.operations.operation import Operation, Segment
from scalescope.records.operations import OPERATION_FACTS

ALL_GATHER = Operation(
    facts=OPERATION_FACTS["all_gather"],
    run=lambda transport, io: transport.all_gather(io.send, io.receive),
    expected=lambda chunk, rank, n, root: [Segment(peer * chunk, chunk, 0, peer) for peer in range(n)],
    splits_receive=True,
)
