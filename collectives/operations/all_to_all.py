"""all_to_all: rank r ends with chunk r of every rank, in rank order."""

from scalescope.collectives.operations.operation import Operation, Segment

ALL_TO_ALL = Operation(
    name="all_to_all",
    run=lambda path, io: path.all_to_all(io.send, io.receive),
    bus_factor=lambda n: (n - 1) / n,
    expected=lambda chunk, rank, n, root: [Segment(peer * chunk, chunk, rank * chunk, peer) for peer in range(n)],
    split=True,
    splits_send=True,
    splits_receive=True,
    in_place=False,
    natural_mode="out_of_place",
)
