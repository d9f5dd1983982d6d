"""From recorded windows to the run folder's traces, once nothing is timed any more."""

import socket
import sys
from typing import Any

import torch.distributed as dist

from scalescope.hardware.detect import versions
from scalescope.launch.job import Job
from scalescope.records.errors import RunError
from scalescope.records.rows import RunInfo
from scalescope.train.config import TrainConfig
from scalescope.train.measure.kineto import Tracer


def describe_run(job: Job[TrainConfig], info: RunInfo) -> dict[str, Any]:
    """Return what a trace's header says of its run, so that a trace alone is no orphan."""
    own = versions(job.backend)
    return {
        "run": info.name,
        "config_hash": info.config_hash,
        "scalescope": own.scalescope,
        "torch": own.torch,
        "model": job.config.model.name,
        "strategy": job.config.strategy.kind,
        "precision": job.config.precision.kind,
        "world_size": job.world.size,
        "rank": job.world.rank,
        "host": socket.gethostname(),
    }


def write_traces(job: Job[TrainConfig], tracer: Tracer) -> None:
    """Write this rank's traces; rank 0 hands the folder on. Raises RunError on every rank where one did not fit."""
    failures = [failure for failure in (_write(job, tracer, index) for index in range(tracer.count)) if failure]
    reported: list[tuple[list[str], list[str]]] = [([], [])] * job.world.size
    dist.all_gather_object(reported, (failures, tracer.remarks), group=job.host_group)
    everyone = [own for own, _ in reported]
    if job.is_rank0:
        # ranks of one job count much the same: the first one's words stand for all
        for remark in next((remarks for _, remarks in reported if remarks), ()):
            print(f"{job.config.model.name}: {remark}", flush=True)
    if job.is_rank0 and job.folder.traces.is_dir():
        job.sinks.artifact(job.folder.traces)
    if any(everyone):
        first = next(failure for own in everyone for failure in own)
        raise RunError(
            f"{sum(map(len, everyone))} trace(s) could not be written, the first: {first}; steps.jsonl "
            "is whole. Make room, or set `runs=` to a file system that has it"
        )


def rescue_traces(job: Job[TrainConfig], tracer: Tracer) -> None:
    """On the way out of a failed job: write this rank's finished windows, without waiting for anybody."""
    for index in range(tracer.count):
        if failure := _write(job, tracer, index):
            print(f"scalescope: a trace could not be written: {failure}", file=sys.stderr)


def _write(job: Job[TrainConfig], tracer: Tracer, index: int) -> str | None:
    path = job.folder.trace_of(job.world.rank, tracer.first_step(index))
    try:
        tracer.export(index, path)
    except (OSError, RuntimeError) as error:  # Kineto's own failures are RuntimeErrors
        return f"{path}: {error}"
    return None
