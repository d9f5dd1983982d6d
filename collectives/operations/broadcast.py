"""broadcast: every rank ends with the root's buffer."""

from scalescope.collectives.operations.operation import Operation, whole
from scalescope.records.operations import OPERATION_FACTS

BROADCAST = Operation(
    facts=OPERATION_FACTS["broadcast"],
    run=lambda transport, io: transport.broadcast(io.send, io.receive, io.root),
    expected=lambda chunk, rank, n, root: whole(chunk, source=root),
)
