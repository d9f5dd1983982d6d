"""all_gather: every rank ends with the chunks of all ranks, in rank order."""

from scalescope.collectives.operations.operation import Operation, Segment

ALL_GATHER = Operation(
    name="all_gather",
    run=lambda path, io: path.all_gather(io.send, io.receive),
    bus_factor=lambda n: (n - 1) / n,
    expected=lambda chunk, rank, n, root: [Segment(peer * chunk, chunk, 0, peer) for peer in range(n)],
    split=True,
    splits_receive=True,
)
