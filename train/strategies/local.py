"""No communication: every rank trains on its own, which is what the same step costs when nobody waits for anybody."""

from train.strategies.base import Strategy


class Local(Strategy):
    """The plain step; ranks drift apart, since nothing is exchanged."""
