"""reduce_scatter: rank r ends with chunk r of the reduction of all ranks' buffers."""

from scalescope.collectives.operations.operation import Operation, Segment
from scalescope.records.operations import OPERATION_FACTS

REDUCE_SCATTER = Operation(
    facts=OPERATION_FACTS["reduce_scatter"],
    run=lambda transport, io: transport.reduce_scatter(io.send, io.receive, io.reduction),
    expected=lambda chunk, rank, n, root: [Segment(0, chunk, rank * chunk, None)],
    splits_send=True,
    misplaces_in_place=("mpi",),
)
