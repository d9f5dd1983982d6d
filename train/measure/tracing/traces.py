"""From recorded windows to the run folder's traces, once nothing is timed any more."""

import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import torch.distributed as dist

from scalescope.hardware.detect import versions
from scalescope.launch.job import Job
from scalescope.records.errors import RunError
from scalescope.records.rows import RunInfo
from scalescope.records.steps.recording import (
    LongerFacts,
    RecordedWindow,
    RecordingBursts,
    RecordingFacts,
    WindowFacts,
    recorded_facts,
)
from scalescope.train.config import TrainConfig
from scalescope.train.measure.tracing.bursts import Bursts
from scalescope.train.measure.tracing.kineto import Tracer

#: What a rank tells at the end: traces that could not be written, remarks, and its bursts.
_Report = tuple[list[str], list[str], RecordingBursts | None]


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


def write_traces(
    job: Job[TrainConfig], tracer: Tracer, bursts: Bursts, opened: Mapping[int, LongerFacts] | None = None
) -> None:
    """Write this rank's traces; rank 0 hands the folder on. Raises RunError on every rank where one did not fit.

    What recording costs here, and the steps beside each window, go into each trace's header and into recording.json.
    `opened`: why windows were that nobody had planned, by their first recorded step; the same on all ranks.
    """
    own = bursts.measure() if tracer.count else None
    windows = [msgspec.structs.replace(one, longer=(opened or {}).get(one.steps[0])) for one in _windows(job, tracer)]
    failures = [
        failure
        for index in range(tracer.count)
        if (failure := _write(job, tracer, index, _known_of(tracer, index, windows, own)))
    ]
    reported: list[_Report] = [([], [], None)] * job.world.size
    dist.all_gather_object(reported, (failures, tracer.remarks, own), group=job.host_group)
    everyone = [one for one, _, _ in reported]
    if job.is_rank0:
        # ranks of one job count much the same: the first one's words stand for all
        for remark in next((remarks for _, remarks, _ in reported if remarks), ()):
            print(f"{job.config.model.name}: {remark}", flush=True)
        if windows:
            measured = [one for _, _, one in reported if one is not None]
            job.folder.write_recording(RecordingFacts(bursts=measured, windows=windows))
    if job.is_rank0 and job.folder.traces.is_dir():
        job.sinks.artifact(job.folder.traces)
    if any(everyone):
        first = next(failure for own in everyone for failure in own)
        raise RunError(
            f"{sum(map(len, everyone))} trace(s) could not be written, the first: {first}; steps.jsonl "
            "is whole. Make room, or set `runs=` to a file system that has it"
        )


def _windows(job: Job[TrainConfig], tracer: Tracer) -> list[WindowFacts]:
    """Return the windows that any rank recorded, with the steps beside each, by rank 0's rows; the same on all."""
    recorded: list[list[RecordedWindow]] = [[]] * job.world.size
    dist.all_gather_object(recorded, [tracer.recorded(index) for index in range(tracer.count)], group=job.host_group)
    found: list[list[WindowFacts]] = [[]]
    if job.is_rank0:
        rows = job.folder.read_steps()
        longest = {one.steps[0]: one for own in recorded for one in sorted(own, key=lambda one: len(one.steps))}
        found = [[recorded_facts(rows, longest[first]) for first in sorted(longest)]]
    dist.broadcast_object_list(found, src=0, group=job.host_group)
    return found[0]


def _known_of(
    tracer: Tracer, index: int, windows: Sequence[WindowFacts], bursts: RecordingBursts | None
) -> dict[str, WindowFacts | RecordingBursts]:
    window = next(one for one in windows if one.steps[0] == tracer.steps(index)[0])
    return {"window": window, **({"bursts": bursts} if bursts is not None else {})}


def rescue_traces(job: Job[TrainConfig], tracer: Tracer) -> None:
    """On the way out of a failed job: write this rank's finished windows, without waiting for anybody."""
    for index in range(tracer.count):
        if failure := _write(job, tracer, index, {}):
            print(f"scalescope: a trace could not be written: {failure}", file=sys.stderr)


def _write(job: Job[TrainConfig], tracer: Tracer, index: int, later: Mapping[str, Any]) -> str | None:
    path = job.folder.trace_of(job.world.rank, tracer.steps(index)[0])
    try:
        tracer.export(index, path, later)
    except (OSError, RuntimeError) as error:  # Kineto's own failures are RuntimeErrors
        return f"{path}: {error}"
    return None
