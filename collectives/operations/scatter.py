"""scatter: rank r ends with chunk r of the root's buffer."""

from scalescope.collectives.operations.operation import Operation, Segment

SCATTER = Operation(
    name="scatter",
    run=lambda path, io: path.scatter(io.send, io.receive, io.root),
    bus_factor=lambda n: (n - 1) / n,
    expected=lambda chunk, rank, n, root: [Segment(0, chunk, rank * chunk, root)],
    split=True,
    splits_send=True,
    rooted=True,
    natural_mode="out_of_place",
)
