"""What launching a kernel costs: tiny ones back to back, by the host's clock, until the device has run all of them."""

import time
from collections.abc import Iterator

import torch

from scalescope.records.scorecard.row import ScorecardRow
from scalescope.scorecard.machine import MachineUnderTest, mean_and_half

_KERNELS, _BURSTS = {True: 2000, False: 500}, 7


def measure(machine: MachineUnderTest) -> Iterator[ScorecardRow]:
    """Yield the time from one launch to the next, in µs; on a CPU a call of the same operator."""
    one = torch.zeros(1, device=machine.device)
    count = _KERNELS[machine.full]
    bursts_us = [_burst_s(machine, one, count) / count * 1e6 for _ in range(_BURSTS + 1)][1:]
    mean, half = mean_and_half(bursts_us)
    figure = (mean, max(mean - half, min(bursts_us)), mean + half)
    yield machine.row("launch", "launch_latency", f"{count} kernels of one element", "µs", figure)


def _burst_s(machine: MachineUnderTest, one: torch.Tensor, count: int) -> float:
    if machine.on_gpu:
        torch.cuda.synchronize(machine.device)
    started = time.perf_counter()
    for _ in range(count):
        one.add_(1.0)
    if machine.on_gpu:
        torch.cuda.synchronize(machine.device)
    return time.perf_counter() - started
