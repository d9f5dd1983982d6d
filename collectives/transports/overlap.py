"""Whether two buffers share memory: the operation between them is in place."""

import torch


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two buffers have bytes in common."""
    return one.data_ptr() < other.data_ptr() + other.nbytes and other.data_ptr() < one.data_ptr() + one.nbytes
