"""reduce: the root ends with the reduction of all ranks' buffers; what the others hold is undefined."""

from scalescope.collectives.operations.operation import Operation, whole

REDUCE = Operation(
    name="reduce",
    run=lambda path, io: path.reduce(io.send, io.receive, io.reduction, io.root),
    bus_factor=lambda n: 1.0,
    expected=lambda chunk, rank, n, root: whole(chunk, source=None) if rank == root else [],
    reduces=True,
    rooted=True,
)
