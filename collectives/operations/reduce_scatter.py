"""reduce_scatter: rank r ends with chunk r of the reduction of all ranks' buffers."""

from scalescope.collectives.operations.operation import Operation, Segment

REDUCE_SCATTER = Operation(
    name="reduce_scatter",
    run=lambda path, io: path.reduce_scatter(io.send, io.receive, io.reduction),
    bus_factor=lambda n: (n - 1) / n,
    expected=lambda chunk, rank, n, root: [Segment(0, chunk, rank * chunk, None)],
    split=True,
    splits_send=True,
    reduces=True,
)
