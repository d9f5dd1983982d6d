"""One device of a profile of XLA as trace events: its streams, what launched on the host, and the marks of the steps.

A profile holds all devices of a process, and its JSON no categories, so what is shown is the rank as it was read.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scalescope.scaling.trace.trace import KERNEL, HostSpans, Trace
from scalescope.scaling.trace.xla.read import read_device

Event = dict[str, Any]

_DEVICE, _HOST = "device", "host"


def base_ns_of(path: Path, device: int | None) -> int:
    """Return what a device's times count from, in absolute ns; 0 where the profile does not say."""
    return read_device(path, device).header.base_ns


def read_device_events(path: Path, device: int | None) -> Iterator[Event]:
    """Yield a device's events, as Kineto would have them. Raises UserError where the file is no profile."""
    trace = read_device(path, device)
    ran = trace.activities
    rows = zip(ran.start.tolist(), ran.end.tolist(), ran.name.tolist(), ran.stream.tolist(), ran.correlation.tolist(),
               ran.kind.tolist(), strict=True)  # fmt: skip
    for start, end, name, stream, correlation, kind in rows:
        category = "kernel" if kind == KERNEL else "gpu_memcpy"
        yield _event(_DEVICE, stream, category, trace.names[name], start, end, correlation)
    yield from _spans(trace, trace.runtime, "cuda_runtime")
    yield from _spans(trace, trace.annotations, "user_annotation")
    for stream in sorted(set(ran.stream.tolist())):
        yield {"ph": "M", "pid": _DEVICE, "tid": stream, "name": "thread_name", "args": {"name": f"stream {stream}"}}


def _spans(trace: Trace, spans: HostSpans, category: str) -> Iterator[Event]:
    rows = zip(spans.start.tolist(), spans.end.tolist(), spans.name.tolist(), spans.thread.tolist(),
               spans.correlation.tolist(), strict=True)  # fmt: skip
    for start, end, name, thread, correlation in rows:
        yield _event(_HOST, thread, category, trace.names[name], start, end, correlation)


def _event(pid: str, tid: int, category: str, name: str, start: int, end: int, correlation: int) -> Event:
    return {
        "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start / 1000,
        "dur": (end - start) / 1000, "args": {"correlation": correlation} if correlation > 0 else {},
    }  # fmt: skip
