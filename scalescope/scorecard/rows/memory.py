"""Device memory: a copy (one read, one write an element) and STREAM's triad a = b + s·c (two reads, one write)."""

from collections.abc import Iterator

import torch

from scalescope.records.scorecard.row import Conditions, ScorecardRow
from scalescope.scorecard.machine import MachineUnderTest

_BYTES = {True: 1 << 30, False: 1 << 25}  # an array: many times what any cache holds; on a CPU as fits a second


def measure(machine: MachineUnderTest) -> Iterator[ScorecardRow]:
    """Yield both, in TB/s."""
    size = _BYTES[machine.full]
    first, second, third = (torch.randn(size // 4, device=machine.device) for _ in range(3))
    yield _row(machine, "copy", machine.times_s(lambda: first.copy_(second)), 2 * size)
    yield _row(machine, "triad", machine.times_s(lambda: torch.add(second, third, alpha=3.0, out=first)), 3 * size)


def copy_bytes_s(machine: MachineUnderTest) -> float:
    """Return the speed of a copy in bytes read and written a second, measured once."""
    if machine.copy_bytes_s is None:
        next(measure(machine))
    assert machine.copy_bytes_s is not None
    return machine.copy_bytes_s


def _row(machine: MachineUnderTest, what: str, times_s: list[float], moved: int) -> ScorecardRow:
    figure = machine.rate(times_s, moved / 1e12)
    if what == "copy":
        machine.copy_bytes_s = figure[0] * 1e12
    size = f"{moved // (2 if what == 'copy' else 3) // 2**20} MiB an array"
    return machine.row("memory", "memory_bandwidth", f"{what}, {size}", "TB/s", figure, Conditions(bytes=moved))
