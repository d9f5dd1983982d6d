"""No communication: every rank trains on its own, which is what the same step costs when nobody waits for anybody."""

from typing import Any

import torch.distributed as dist

from scalescope.train.strategies.base import Strategy
from scalescope.train.strategies.local.config import LocalConfig


class Local(Strategy[LocalConfig]):
    """The plain step; ranks drift apart, since nothing is exchanged."""

    def state(self) -> dict[str, Any]:
        return {f"rank{dist.get_rank()}": super().state()}  # a checkpoint would keep one of equal names only

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state[f"rank{dist.get_rank()}"])
