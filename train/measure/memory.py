"""How much memory a rank has needed at most."""

import resource

import torch


def peak_bytes(device: torch.device) -> int:
    """Return the peak of what torch allocated on a GPU, or of the whole process on a CPU; no device is asked."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return _peak_resident() - sum(_left_out)


def leave_out(since_bytes: int) -> None:
    """Leave out of the peak of a CPU's process by what it has grown since: what was taken to measure it."""
    _left_out.append(_peak_resident() - sum(_left_out) - since_bytes)


def _peak_resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


_left_out: list[int] = []


def record_history(device: torch.device) -> None:
    """From now on note for each block of a GPU's memory which lines asked for it."""
    if device.type == "cuda":
        torch.cuda.memory._record_memory_history(enabled="state", stacks="python", device=device)
