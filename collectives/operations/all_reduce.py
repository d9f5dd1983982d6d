"""all_reduce: every rank ends with the reduction of all ranks' buffers."""

from scalescope.collectives.operations.operation import Operation, whole
from scalescope.records.operations import OPERATION_FACTS

ALL_REDUCE = Operation(
    facts=OPERATION_FACTS["all_reduce"],
    run=lambda transport, io: transport.all_reduce(io.send, io.receive, io.reduction),
    expected=lambda chunk, rank, n, root: whole(chunk, source=None),
)
