"""all_reduce at 1 GiB and at 8 B by GPU count: a short sweep, whose rows these are."""

from collections.abc import Iterator

from scalescope.records.rows import SweepRow
from scalescope.records.scorecard.row import Conditions, ScorecardRow
from scalescope.scorecard.machine import MachineUnderTest

_SIZES = {True: "8B,1GiB", False: "8B,64KiB"}
_OPERATION = "all_reduce"


def measure(machine: MachineUnderTest) -> Iterator[ScorecardRow]:
    """Yield the bus bandwidth of the large size and the time of the small one, a group size."""
    if machine.devices < 2:
        yield machine.missing("all_reduce", "all_reduce_busbw", "1 GiB", "GB/s", "there is one GPU, and it takes two")
        return
    small = [] if machine.full else ["min_iterations=3", "percentile_iterations=0"]
    folder = machine.run_job("sweep", "all_reduce", machine.devices, [
        f"operations=[{_OPERATION}]", f'sizes="{_SIZES[machine.full]}"', f"budget_s={machine.budget_s}",
        "dtypes=[float32]", *small,
    ])  # fmt: skip
    rows = folder.read_sweep()
    least = min((row.bytes for row in rows), default=0)
    for row in rows:
        yield _row(machine, row, latency=row.bytes == least)


def _row(machine: MachineUnderTest, row: SweepRow, *, latency: bool) -> ScorecardRow:
    quantity, unit = ("all_reduce_latency", "µs") if latency else ("all_reduce_busbw", "GB/s")
    what = f"{row.bytes:,} B on {row.group_size}, {row.backend}"
    conditions = Conditions(devices=row.group_size, bytes=row.bytes)
    if row.time_us is None or row.bus_gb_s is None:
        return machine.missing("all_reduce", quantity, what, unit, row.reason or row.status, conditions)
    low, high = row.interval_us or (row.time_us, row.time_us)
    least = low if low > 0 else row.time_min_us or row.time_us  # few measurements of an unsteady machine
    moved = row.bus_gb_s * row.time_us
    figure = (row.time_us, least, high) if latency else (row.bus_gb_s, moved / high, moved / least)
    return machine.row("all_reduce", quantity, what, unit, figure, conditions)
