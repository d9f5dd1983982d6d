"""gather: the root ends with the chunks of all ranks, in rank order."""

from scalescope.collectives.operations.operation import Operation, Segment

GATHER = Operation(
    name="gather",
    run=lambda path, io: path.gather(io.send, io.receive, io.root),
    bus_factor=lambda n: (n - 1) / n,
    expected=lambda chunk, rank, n, root: (
        [Segment(peer * chunk, chunk, 0, peer) for peer in range(n)] if rank == root else []
    ),
    split=True,
    splits_receive=True,
    rooted=True,
    natural_mode="out_of_place",
)
