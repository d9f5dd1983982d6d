"""barrier: no rank leaves before the last one has entered. It moves no data and has no bandwidth."""

from scalescope.collectives.operations.operation import Operation
from scalescope.records.operations import OPERATION_FACTS

BARRIER = Operation(
    facts=OPERATION_FACTS["barrier"],
    run=lambda transport, io: transport.barrier(),
    expected=lambda chunk, rank, n, root: [],
    waits_on_host=True,
)
