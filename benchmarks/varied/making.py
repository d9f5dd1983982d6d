"""Measuring what a cause costs, untraced, and recording it."""

import gc
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

from varied.causes import OF_ONE, SHOWS_LATE, codes_of
from varied.disturbing import Causes, Step, reading_loss
from varied.jobs import job

_STRETCHES, _STEPS, _ACTIVE = 8, 6, 4
#: Untimed steps before a stretch.
_BEFORE, _BEFORE_LATE = 1, 3


def make(out: Path, wanted: Sequence[tuple[str, str]], limit_s: float, say: Callable[[str], None] = print) -> None:
    """Measure and record in each rank, job by job; begin nothing after `limit_s`."""
    begun = time.monotonic()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for name in dict.fromkeys(of for of, _ in wanted):
        if _late(begun, limit_s):
            break
        torch.manual_seed(0)
        step = reading_loss(job(name)) if Causes.read_loss else job(name)
        for cause in (cause for of, cause in wanted if of == name):
            if _late(begun, limit_s):
                break
            folder = out / name / cause
            folder.mkdir(parents=True, exist_ok=True)
            truth = _measured(step, cause)
            truth |= {
                "codes": codes_of(cause, read_loss=Causes.read_loss),
                "rank": world - 1 if cause in OF_ONE and world > 1 else None,
                "world_size": world,
            }
            _record(step, cause, folder / f"rank{rank}.pt.trace.json")
            if rank == 0:
                (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
                cost = f"{truth['cost_ms']:.2f} ({truth['low_ms']:.2f} to {truth['high_ms']:.2f})"
                say(f"{name} {cause}: step {truth['step_ms']:.2f} ms, costs {cost}")
        del step
        gc.collect()  # what holds itself, and workers of loaders
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    dist.barrier()
    dist.destroy_process_group()


def _late(begun: float, limit_s: float) -> bool:
    late = [time.monotonic() - begun > limit_s]
    dist.broadcast_object_list(late, 0)  # one clock decides for all
    return late[0]


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    dist.barrier()
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _measured(step: Step, cause: str) -> dict[str, Any]:
    """Return the steps with a cause and without, in turns, and what it costs by neighbouring stretches, ms a step."""
    for at in range(6):
        step(cause if at % 2 else None)
    taken: dict[bool, list[float]] = {False: [], True: []}
    for stretch in range(_STRETCHES):
        disturbed = stretch % 4 in (1, 2)
        applied = cause if disturbed and cause != "none" else None
        for _ in range(_BEFORE_LATE if cause in SHOWS_LATE else _BEFORE):
            step(applied)
        _wait()
        since = time.perf_counter()
        for _ in range(_STEPS):
            step(applied)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        taken[disturbed].append((time.perf_counter() - since) * 1e3 / _STEPS)
    differences = [with_it - without for with_it, without in zip(taken[True], taken[False], strict=True)]
    return {
        "step_ms": statistics.median(taken[True] if cause != "none" else taken[True] + taken[False]),
        "without_ms": statistics.median(taken[False]),
        "cost_ms": statistics.fmean(differences) if cause != "none" else 0.0,
        "low_ms": min(differences),
        "high_ms": max(differences),
    }


def _record(step: Step, cause: str, file: Path) -> None:
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    _wait()
    with profile(
        activities=activities,
        schedule=schedule(wait=1, warmup=2, active=_ACTIVE, repeat=1),
        on_trace_ready=lambda recorded: recorded.export_chrome_trace(str(file)),
    ) as profiler:
        for _ in range(3 + _ACTIVE):
            step(cause)
            profiler.step()
    _wait()
