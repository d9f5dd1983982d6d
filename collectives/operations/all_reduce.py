"""all_reduce: every rank ends with the reduction of all ranks' buffers."""

from scalescope.collectives.operations.operation import Operation, whole

ALL_REDUCE = Operation(
    name="all_reduce",
    run=lambda path, io: path.all_reduce(io.send, io.receive, io.reduction),
    bus_factor=lambda n: 2 * (n - 1) / n,
    expected=lambda chunk, rank, n, root: whole(chunk, source=None),
    reduces=True,
)
