"""How much memory a rank has needed at most."""

import resource

import torch

from launch.job import Job
from train.config import TrainConfig


def peak_bytes(device: torch.device) -> int:
    """Return the peak of what torch allocated on a GPU, or of the whole process on a CPU; no device is asked."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def explain_out_of_memory(job: Job[TrainConfig], error: torch.OutOfMemoryError) -> str:
    """Return what ran out, and the settings that need less, cheapest first."""
    first_line = next(iter(str(error).splitlines()), "")
    ways = [f"a smaller batch (model.batch_size={max(1, job.config.model.batch_size // 2)})"]
    ways.append(f"more parts a step (accumulate={job.config.accumulate * 2})")
    if job.config.model.kind == "gpt" and not job.config.recompute:
        ways.append("recompute=true")
    if job.config.strategy.kind == "ddp" and job.world.size > 1:
        ways.append("strategy=fsdp2")
    return f"rank {job.world.rank} ran out of device memory: {first_line}. What needs less: {', '.join(ways)}"
