"""The collectives, one file each. A new one is its file and its name here."""

from collectives.operations.all_gather import ALL_GATHER
from collectives.operations.all_reduce import ALL_REDUCE
from collectives.operations.all_to_all import ALL_TO_ALL
from collectives.operations.barrier import BARRIER
from collectives.operations.broadcast import BROADCAST
from collectives.operations.gather import GATHER
from collectives.operations.operation import Operation
from collectives.operations.reduce import REDUCE
from collectives.operations.reduce_scatter import REDUCE_SCATTER
from collectives.operations.scatter import SCATTER
from collectives.operations.send_recv import SEND_RECV

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
