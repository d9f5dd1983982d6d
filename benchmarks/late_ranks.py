"""`scalescope train` inside a world of which some ranks sleep so many ms in each step: a change of known size.

SLEEP_MS=2.5 SLEEP_RANKS=1 torchrun --nproc-per-node 2 benchmarks/late_ranks.py train model=gpt_tiny …
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from scalescope.cli.front_door import main


def sleep_before_backward(ms: float) -> None:
    """Let this rank sleep between its forward and its backward pass, as a slow call of the loop's own would."""
    plain: Callable[..., None] = torch.Tensor.backward

    def late(self: torch.Tensor, *args: object, **options: object) -> None:
        time.sleep(ms / 1e3)
        plain(self, *args, **options)

    setattr(torch.Tensor, "backward", late)  # noqa: B010 (a method, which mypy lets nobody assign)


if __name__ == "__main__":
    if os.environ["RANK"] in os.environ["SLEEP_RANKS"].split(","):
        sleep_before_backward(float(os.environ["SLEEP_MS"]))
    sys.exit(main(sys.argv[1:]))
