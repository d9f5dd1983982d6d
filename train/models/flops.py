"""How much arithmetic a sample costs by the model's own definition: pure counting, torch-free.

A multiply-add is two FLOPs; a backward pass costs twice its forward pass. What is computed again counts for the
hardware's utilisation alone, not for the model's. Each model counts its own, in its config.
"""

from typing import NamedTuple


class Flops(NamedTuple):
    """FLOPs of one training sample, forward and backward, with the formula that gave them."""

    per_sample: float
    formula: str
    hardware_per_sample: float  # with activations that are computed again
    hardware_formula: str


def nothing_twice(per_sample: float, formula: str) -> Flops:
    """Return the FLOPs of a sample of which nothing is computed again."""
    return Flops(per_sample, formula, per_sample, "the model's: nothing is computed again")
