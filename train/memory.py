"""How much memory a rank has needed at most."""

import re
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
    asked = match[0] if (match := re.search(r"Tried to allocate [^.]+(\.\d+)? \w+", str(error))) else "out of memory"
    used, total = peak_bytes(job.device) / 1e9, torch.cuda.mem_get_info(job.device)[1] / 1e9
    ways = [f"a smaller batch (model.batch_size={max(1, job.config.model.batch_size // 2)})"]
    ways.append(f"more parts a step (accumulate={job.config.accumulate * 2})")
    if job.config.model.kind == "gpt" and not job.config.recompute:
        ways.append("recompute=true")
    if job.config.strategy.kind == "ddp" and job.world.size > 1:
        ways.append("strategy=fsdp2")
    return (
        f"rank {job.world.rank} ran out of device memory ({asked} with {used:.1f} of {total:.1f} GB in use at most); "
        f"what needs less: {', '.join(ways)}"
    )
