"""`scalescope train` with a rank 1 that is late in each step from the 30th on: `python late_rank_job.py train …`.

It sleeps 100 ms, or three times what its steps took before where that is more: on any machine it stands out.
"""

import os
import statistics
import sys
import time

from torch import Tensor

from scalescope.cli.front_door import main
from scalescope.train.data.samples import Batch
from scalescope.train.strategies.base import Strategy
from scalescope.train.strategies.ddp.strategy import Ddp

SLEEPS_FROM, SLEEP_S = 30, 0.1
_took_s: list[float] = []


def sleepy_step(self: Ddp, batch: Batch, step: int) -> Tensor:
    """A step of DDP's, late on rank 1."""
    if os.environ["RANK"] == "1" and step >= SLEEPS_FROM:
        time.sleep(max(SLEEP_S, 3 * statistics.median(_took_s[:SLEEPS_FROM])))
    began_s = time.perf_counter()
    loss = Strategy.train_step(self, batch, step)
    _took_s.append(time.perf_counter() - began_s)
    return loss


if __name__ == "__main__":
    Ddp.train_step = sleepy_step  # type: ignore[method-assign, assignment]
    sys.exit(main(sys.argv[1:]))
