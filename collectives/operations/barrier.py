"""barrier: no rank leaves before the last one has entered. It moves no data and has no bandwidth."""

from scalescope.collectives.operations.operation import Operation

BARRIER = Operation(
    name="barrier",
    run=lambda path, io: path.barrier(),
    bus_factor=lambda n: 0.0,
    expected=lambda chunk, rank, n, root: [],
    moves_data=False,
    waits_on_host=True,
)
