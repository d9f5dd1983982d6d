"""Training without communication, as far as it takes no torch."""

from dataclasses import dataclass
from typing import ClassVar

from scalescope.launch.config import Sent
from scalescope.train.strategies.config import StrategyConfig


@dataclass
class LocalConfig(StrategyConfig):
    """Every rank trains on its own: what the same step costs when nobody waits for anybody."""

    own_kind: ClassVar[str] = "local"
    implementation: ClassVar[str] = "scalescope.train.strategies.local.strategy:Local"
    scales_gradients: ClassVar[bool] = True
    synchronises: ClassVar[bool] = False

    def sent(self, precision: str) -> Sent:
        return Sent()
