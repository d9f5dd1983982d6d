"""reduce: the root ends with the reduction of all ranks' buffers; what the others hold is undefined."""

from scalescope.collectives.operations.operation import Operation, whole
from scalescope.records.operations import OPERATION_FACTS

REDUCE = Operation(
    facts=OPERATION_FACTS["reduce"],
    run=lambda transport, io: transport.reduce(io.send, io.receive, io.reduction, io.root),
    expected=lambda chunk, rank, n, root: whole(chunk, source=None) if rank == root else [],
)
