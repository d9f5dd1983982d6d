"""One rank of transport=xla by itself: each collective on random numbers, against what numpy says of all ranks'.

Prints, on rank 0, {operation: [wrong elements of all ranks, of one operation and of those after a program of 5]}, and
on every rank a line "listens" with the addresses that its process listens at.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import cast

import numpy as np
import psutil
import torch
import torch.distributed as dist

from scalescope.collectives.operations import OPERATIONS
from scalescope.collectives.operations.operation import Bound
from scalescope.collectives.transports.messages import Messages
from scalescope.collectives.transports.xla import world
from scalescope.collectives.transports.xla.transport import BoundCollective, XlaTransport
from scalescope.launch.network.loopback import stay_on_loopback
from scalescope.launch.network.rendezvous import join
from scalescope.launch.world import discover

CHUNK = 48  # elements
Parts = list[np.ndarray]

#: What rank r holds of n ranks' parts, by operation.
EXPECTED: dict[str, Callable[[Parts, int], np.ndarray]] = {
    "all_reduce": lambda parts, r: np.sum(parts, axis=0),
    "all_gather": lambda parts, r: np.concatenate(parts),
    "reduce_scatter": lambda parts, r: np.sum(parts, axis=0)[r * CHUNK : (r + 1) * CHUNK],
    "all_to_all": lambda parts, r: np.concatenate([part[r * CHUNK : (r + 1) * CHUNK] for part in parts]),
    "send_recv": lambda parts, r: parts[r - 1],
}


def main() -> None:
    stay_on_loopback()
    place = discover()
    assert place is not None
    rank, size = place.rank, place.size
    dist.init_process_group("gloo", store=join(place, 60), rank=rank, world_size=size)
    ranks, device = tuple(range(size)), torch.device("cpu")
    messages = Messages(cast(dist.ProcessGroup, dist.group.WORLD), ranks, rank)
    assert world.refusal(device) is None
    world.join(messages, device, one_host=True, timeout_s=60)
    transport = XlaTransport(ranks, rank)
    wrong = {}
    for name, expected in EXPECTED.items():
        operation = OPERATIONS[name]
        numbers = np.random.default_rng(7).integers(-1000, 1000, (size, operation.send_elements(CHUNK, size)))
        parts = list(numbers.astype(np.float32))
        send = torch.from_numpy(parts[rank].copy())
        receive = torch.full((operation.receive_elements(CHUNK, size),), torch.nan)
        call = cast(BoundCollective, operation.run(transport, Bound(send, receive, rank, size, "sum", 0)))
        call()
        once = int((receive.numpy() != expected(parts, rank)).sum())
        transport.chained([call], 5)(2)
        after = np.array(call.dispatch(5).received.addressable_shards[0].data)
        again = int((after != expected(parts, rank)).sum())
        wrong[name] = [messages.total(once), messages.total(again)]
    if rank == 0:
        print("wrong", json.dumps(wrong), flush=True)
    own = psutil.Process(os.getpid()).net_connections(kind="inet")
    # One write, on a line of its own: another rank or XLA's log may be in the middle of a line.
    listening = " ".join({one.laddr.ip for one in own if one.status == psutil.CONN_LISTEN})
    sys.stdout.write(f"\nlistens {listening}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
