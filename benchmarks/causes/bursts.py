"""What recording costs a call: bursts of 1,000 operators and runtime calls, with a profiler and without.

A tiny kernel is one operator and one runtime call, a view is an operator alone, an event record a call alone, and a
node of a backward pass an operator on autograd's thread with one or two kernels.
"""

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

TIMES, REPEATS = 1000, 3
Burst = Callable[[], object]


def bursts(device: torch.device) -> dict[str, Burst]:
    """Return the bursts by name; without a device, those that need none."""
    on_gpu = device.type == "cuda"
    scalar, rows = torch.zeros(1, device=device), torch.zeros(8, 8, device=device)

    def kernels() -> None:
        for _ in range(TIMES):
            scalar.add_(1)

    def views() -> None:
        for _ in range(TIMES):
            rows.view(64)

    def events() -> None:
        event = torch.cuda.Event()
        for _ in range(TIMES):
            event.record()

    return {"kernel": kernels, "view": views, **({"event_record": events} if on_gpu else {})}


def measure(device: torch.device, recording: AbstractContextManager[Any] | None = None) -> dict[str, float]:
    """Return ns of the host a call, by burst, the median of a few repeats."""
    found: dict[str, float] = {}
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    with recording or nullcontext():
        for name, burst in bursts(device).items():
            burst()
            found[name] = statistics.median(_ns(burst, synchronize) for _ in range(REPEATS))
        found["backward_node"] = statistics.median(_backward_ns(device, synchronize) for _ in range(REPEATS))
    return {name: round(ns, 1) for name, ns in found.items()}


def with_and_without(device: torch.device) -> dict[str, dict[str, float]]:
    """Return the bursts with each kind of recording, and after them, when the tracing library is still attached."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    return {
        "recorded": measure(device, profile(activities=activities)),
        "recorded_with_shapes": measure(device, profile(activities=activities, record_shapes=True)),
        "recorded_with_stack": measure(device, profile(activities=activities, with_stack=True)),
        **({"recorded_device_only": measure(device, profile(activities=activities[1:]))} if activities[1:] else {}),
        "after_recording": measure(device),
    }


def _ns(burst: Burst, synchronize: Burst) -> float:
    synchronize()
    began = time.perf_counter_ns()
    burst()
    taken = (time.perf_counter_ns() - began) / TIMES
    synchronize()
    return taken


def _backward_ns(device: torch.device, synchronize: Burst) -> float:
    """Return the time of a node; forward is not timed."""
    x = torch.ones(1, device=device, requires_grad=True)
    for _ in range(TIMES):
        x = x * 1.0
    return _ns(x.backward, synchronize)
