"""The collectives, one file each. A new one is its file and its name here."""

from scalescope.collectives.operations.all_gather import ALL_GATHER
from scalescope.collectives.operations.all_reduce import ALL_REDUCE
from scalescope.collectives.operations.all_to_all import ALL_TO_ALL
from scalescope.collectives.operations.barrier import BARRIER
from scalescope.collectives.operations.broadcast import BROADCAST
from scalescope.collectives.operations.gather import GATHER
from scalescope.collectives.operations.operation import Operation
from scalescope.collectives.operations.reduce import REDUCE
from scalescope.collectives.operations.reduce_scatter import REDUCE_SCATTER
from scalescope.collectives.operations.scatter import SCATTER
from scalescope.collectives.operations.send_recv import SEND_RECV

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        ALL_REDUCE,
        ALL_GATHER,
        REDUCE_SCATTER,
        BROADCAST,
        REDUCE,
        ALL_TO_ALL,
        GATHER,
        SCATTER,
        SEND_RECV,
        BARRIER,
    )
}
