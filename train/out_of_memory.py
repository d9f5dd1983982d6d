"""What is said and kept when a rank runs out of memory: how much, what lay there, and what would need less."""

import re
from pathlib import Path

import torch

from scalescope.launch.job import Job
from scalescope.train.checks import samples_per_rank
from scalescope.train.config import TrainConfig
from scalescope.train.measure.memory import peak_bytes
from scalescope.train.memory_advice import ways_to_need_less
from scalescope.train.models.network import build_model

_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_ASKED = re.compile(r"(?:[Tt]ried|Unable) to allocate ([\d.]+) (bytes|[KMGT]iB)")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is the device's or the host's memory coming to its end; torch has no type for the host's."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def explain_out_of_memory(job: Job[TrainConfig], error: BaseException) -> str:
    """Return what ran out and what needs less; on a GPU, keep a snapshot of what lay in its memory."""
    match = _ASKED.search(str(error))
    asked = float(match[1]) * _UNITS[match[2]] if match else 0.0
    used = float(peak_bytes(job.device))
    parts = [f"it asked for {asked / 1e9:.1f} GB more"] if asked else []
    if job.device.type == "cuda":
        total = torch.cuda.get_device_properties(job.device).total_memory
        parts.append(f"{used / 1e9:.1f} of {total / 1e9:.1f} GB were in use at most")
    else:
        parts.append(f"its process had {used / 1e9:.1f} GB at most")
    parameters = build_model(job.config.model, torch.device("meta")).parameters
    samples = samples_per_rank(job.config, job.world.size)
    ways = ways_to_need_less(job.config, job.world.size, samples, parameters, used + asked)
    lines = f"{', '.join(parts)}; what needs less: {', '.join(str(way) for way in ways) or 'a smaller model'}"
    where = "device" if job.device.type == "cuda" else "host"
    snapshot = _keep_snapshot(job)
    shown = f"; {snapshot} has what lay there (open it at pytorch.org/memory_viz)" if snapshot is not None else ""
    return f"rank {job.world.rank} ran out of {where} memory: {lines}{shown}"


def _keep_snapshot(job: Job[TrainConfig]) -> Path | None:
    """Write the allocator's state, each block with the lines that asked for it where `memory_history` is on."""
    if job.device.type != "cuda":
        return None
    path = job.folder.logs / f"rank{job.world.rank}.memory.pickle"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.cuda.memory._dump_snapshot(str(path))
    except (OSError, RuntimeError):  # a full disk, say: the message goes out without it
        return None
    return path
