"""Ends a world under DDP whose reducer has the last reference to its process group, while a thread of gloo's is late.

On rank 0 it is so by a hook that hands over the gradients and then sleeps in that thread, which needs Python's lock to
awake. Without a hook it needs that lock as well, for the backward pass's context, and is late only now and then.
"""

import time

import torch
import torch.distributed as dist
import torch.distributed.nn  # loaded later, its functions' defaults would hold the group
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from scalescope.train.strategies.process_groups import keep_group_for_reducer

LATE_S = 0.3


def exchange(_: None, bucket: dist.GradBucket) -> Future[Tensor]:
    handed_over: Future[Tensor] = Future()

    def hand_over(done: Future[list[Tensor]]) -> None:
        handed_over.set_result(done.value()[0])
        time.sleep(LATE_S)

    time.sleep(LATE_S * dist.get_rank())  # so that rank 0 has said what comes next before it is done
    dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(hand_over)
    return handed_over


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(8, 8))
    model.register_comm_hook(None, exchange)
    keep_group_for_reducer(model)
    model(torch.ones(2, 8)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
