"""scatter: rank r ends with chunk r of the root's buffer."""

from scalescope.collectives.operations.operation import Operation, Segment
from scalescope.records.operations import OPERATION_FACTS

SCATTER = Operation(
    facts=OPERATION_FACTS["scatter"],
    run=lambda transport, io: transport.scatter(io.send, io.receive, io.root),
    expected=lambda chunk, rank, n, root: [Segment(0, chunk, rank * chunk, root)],
    splits_send=True,
    natural_mode="out_of_place",
)
