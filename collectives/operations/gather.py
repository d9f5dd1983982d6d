"""gather: the root ends with the chunks of all ranks, in rank order."""

from scalescope.collectives.operations.operation import Operation, Segment
from scalescope.records.operations import OPERATION_FACTS

GATHER = Operation(
    facts=OPERATION_FACTS["gather"],
    run=lambda transport, io: transport.gather(io.send, io.receive, io.root),
    expected=lambda chunk, rank, n, root: (
        [Segment(peer * chunk, chunk, 0, peer) for peer in range(n)] if rank == root else []
    ),
    splits_receive=True,
    natural_mode="out_of_place",
)
