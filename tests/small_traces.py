"""Ranks that record themselves into small traces, for tests/data: times and names alone."""

import gzip
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

_SHAPES, _NUMBERS = ("Input Dims", "Input type"), ("Sequence number", "Fwd thread id")


def record_steps(
    file: Path, step: Callable[[], object], steps: int, *, shapes: bool = False, numbers: bool = False
) -> None:
    """Record so many steps into `file`, a name that ends in .json, and leave it packed beside that name.

    `shapes`, `numbers`: with those of operators, and with what autograd counts.
    """
    with profile(activities=[ProfilerActivity.CPU], record_shapes=shapes) as profiler:
        for number in range(steps):
            with record_function(f"ProfilerStep#{number}"):
                step()
    file.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(file))
    trace = json.loads(file.read_text(encoding="utf-8"))
    trace.pop("traceName", None), trace.pop("host_name", None)
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one["ph"] == "X"]
    names = (*(_SHAPES if shapes else ()), *(_NUMBERS if numbers else ()))
    for one in trace["traceEvents"]:
        told = one.pop("args", {})
        if kept := {name: told[name] for name in names if name in told}:
            one["args"] = kept
    packed = gzip.compress(json.dumps(trace, separators=(",", ":")).encode(), 9, mtime=0)
    file.with_suffix(".json.gz").write_bytes(packed)
    file.unlink()


def record_cases(record: Callable[[str, Path], None], cases: Sequence[str] = ()) -> None:
    """Record the cases that a job's arguments name behind the folder for them, or all: a core and a thread a rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    os.sched_setaffinity(0, {dist.get_rank() % (os.cpu_count() or 1)})
    for case in sys.argv[2:] or cases:
        record(case, Path(sys.argv[1]))
    dist.destroy_process_group()
