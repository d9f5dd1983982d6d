"""What ranks' loops did of their profiled steps by the kernel's account: on a core, waiting for one, or neither.

A loop that is neither sleeps: for data, for a lock, for another rank, or because it says so. What it waits for other
ranks and for batches its own trace tells of the very same steps. What is left it sleeps for by itself.
"""

import statistics
from collections.abc import Sequence

from scalescope.records.rows import StepRow
from scalescope.scaling.answer_rows import StepSplit
from scalescope.scaling.answer_steps import HostTime

#: Of fewer steps nothing is told.
_LEAST = 3


def host_times(splits: Sequence[StepSplit], rows: Sequence[StepRow]) -> list[HostTime]:
    """Return it of each rank whose trace and rows tell of the same steps, of its median one; nothing where rows do not.

    The median: what puts a host off once is no habit of its.
    """
    timed = {row.step: row for row in rows if _tells(row)}
    by_rank: dict[int, list[tuple[StepSplit, StepRow]]] = {}
    for one in splits:
        row = timed.get(one.step)
        if row is not None and one.rank < len(row.step_ms) and not one.open_ended:
            by_rank.setdefault(one.rank, []).append((one, row))
    return [_host_time(rank, steps) for rank, steps in sorted(by_rank.items()) if len(steps) >= _LEAST]


def _tells(row: StepRow) -> bool:
    return row.phase == "profile" and len(row.step_ms) == len(row.run_delay_ms) == len(row.on_cpu_ms) > 0


def _host_time(rank: int, steps: Sequence[tuple[StepSplit, StepRow]]) -> HostTime:
    return HostTime(
        rank=rank,
        steps=len(steps),
        on_cpu_ms=statistics.median(row.on_cpu_ms[rank] for _, row in steps),
        run_delay_ms=statistics.median(row.run_delay_ms[rank] for _, row in steps),
        off_cpu_ms=statistics.median(_off_ms(rank, row) for _, row in steps),
        asleep_ms=statistics.median(_off_ms(rank, row) - _exposed_ms(one) for one, row in steps),
        exposed_ms=statistics.median(_exposed_ms(one) for one, _ in steps),
        loading_ms=statistics.median(one.idle_data_ms for one, _ in steps),
        idle_ms=statistics.median(one.idle_launch_ms + one.idle_queued_ms for one, _ in steps),
    )


def _off_ms(rank: int, row: StepRow) -> float:
    return row.step_ms[rank] - row.on_cpu_ms[rank] - row.run_delay_ms[rank]


def _exposed_ms(one: StepSplit) -> float:
    """Return what of a rank's step is communication that nothing hides: its loop waits for that."""
    return one.exposed_transfer_ms + one.exposed_wait_ms + one.exposed_unsplit_ms
