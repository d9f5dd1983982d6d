"""send_recv: every rank sends its buffer to the next rank and receives the previous one's, as in nccl-tests."""

from scalescope.collectives.operations.operation import Operation, whole

SEND_RECV = Operation(
    name="send_recv",
    run=lambda path, io: path.send_recv(io.send, io.receive, (io.rank + 1) % io.size, (io.rank - 1) % io.size),
    bus_factor=lambda n: 1.0,
    expected=lambda chunk, rank, n, root: whole(chunk, source=(rank - 1) % n),
    in_place=False,
    natural_mode="out_of_place",
)
