"""broadcast: every rank ends with the root's buffer."""

from scalescope.collectives.operations.operation import Operation, whole

BROADCAST = Operation(
    name="broadcast",
    run=lambda path, io: path.broadcast(io.send, io.receive, io.root),
    bus_factor=lambda n: 1.0,
    expected=lambda chunk, rank, n, root: whole(chunk, source=root),
    rooted=True,
)
