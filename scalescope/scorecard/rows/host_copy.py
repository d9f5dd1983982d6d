"""Copies between pinned host memory and the device, each way by itself."""

from collections.abc import Iterator

import torch

from scalescope.records.scorecard.row import Conditions, ScorecardRow
from scalescope.scorecard.machine import MachineUnderTest

_BYTES = {True: 1 << 28, False: 1 << 22}
_WAYS = ("host to device", "device to host")


def measure(machine: MachineUnderTest) -> Iterator[ScorecardRow]:
    """Yield both ways, in GB/s."""
    if not machine.on_gpu:
        for way in _WAYS:
            yield machine.missing("host_copy", "host_copy", way, "GB/s", "there is no GPU here")
        return
    size = _BYTES[machine.full]
    here = torch.randn(size // 4).pin_memory()
    there = torch.empty(size // 4, device=machine.device)
    for way, (to, source) in zip(_WAYS, ((there, here), (here, there)), strict=True):
        times_s = machine.times_s(lambda to=to, source=source: to.copy_(source, non_blocking=True))  # type: ignore[misc]
        figure = machine.rate(times_s, size / 1e9)
        yield machine.row("host_copy", "host_copy", f"{way}, {size // 2**20} MiB pinned", "GB/s", figure,
                          Conditions(bytes=size))  # fmt: skip
