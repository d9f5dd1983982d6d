"""send_recv: every rank sends its buffer to the next rank and receives the previous one's, as in nccl-tests."""

from scalescope.collectives.operations.operation import Operation, whole
from scalescope.records.operations import OPERATION_FACTS

SEND_RECV = Operation(
    facts=OPERATION_FACTS["send_recv"],
    run=lambda transport, io: transport.send_recv(
        io.send, io.receive, (io.rank + 1) % io.size, (io.rank - 1) % io.size
    ),
    expected=lambda chunk, rank, n, root: whole(chunk, source=(rank - 1) % n),
    in_place=False,
    natural_mode="out_of_place",
)
