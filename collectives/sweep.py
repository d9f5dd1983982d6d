"""The collectives sweep, as each rank of its job runs it.

Every combination of the config's axes is a point, and every point becomes one row: measured, or with the reason
why not. Groups of ranks take turns; within a group the points share one communicator and one block of memory.
Rank 0 writes each row as it comes, so that whatever ends the sweep early loses at most the point at work.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch.distributed as dist

from scalescope.collectives.config import SweepConfig
from scalescope.collectives.measure import tuning_log
from scalescope.collectives.measure.bench import Bench
from scalescope.collectives.measure.groups import RowTransfer, turn
from scalescope.collectives.plan import Group, PlannedPoint, by_group, plan
from scalescope.collectives.row_recorder import RowRecorder
from scalescope.collectives.show.progress import Display
from scalescope.collectives.show.summary import summarise, why_nothing
from scalescope.collectives.show.table import write_csv
from scalescope.launch.job import Job
from scalescope.launch.watch.abort_reason import AbortReason
from scalescope.records.errors import NothingMeasured
from scalescope.records.rows import SweepRow

_FORMING_S = 10.0  # what a collective library may take to connect its ranks


def run(job: Job[SweepConfig]) -> None:
    """Measure every planned point that has no row yet; rank 0 leaves one row each in the run folder.

    Raises NothingMeasured, on every rank alike, where no point of the whole sweep could be measured.
    """
    planned = plan(job.config, [device.host for device in job.devices], job.device.type)
    if any(point.algorithm or point.protocol for point in planned):
        tuning_log.begin(job.folder.logs, job.world.rank)
    open_points, attempt = _left_to_do(job, planned)
    recorder = RowRecorder(job.folder, job.sinks, attempt)
    job.watchdog.lose_after(job.config.hang_limit_s)  # a rank that waits for its turn is expected at no operation
    job.watchdog.rescue = partial(_give_up, job, open_points, recorder)
    with Display(total=len(planned), done=len(planned) - len(open_points), shown=job.is_rank0) as display:
        for group in by_group(open_points):
            for row in _rows_of(job, group):
                recorder.keep(row)
                display.show(row)
    refusal = [_conclude(job) if job.is_rank0 else None]
    dist.broadcast_object_list(refusal, src=0, group=job.host_group)
    if refusal[0] is not None:
        raise NothingMeasured(refusal[0])


def _left_to_do(job: Job[SweepConfig], planned: list[PlannedPoint]) -> tuple[list[PlannedPoint], int]:
    """Return the planned points without a row, and which attempt at the sweep this is; rank 0 has read the file."""
    answer: list[tuple[set[PlannedPoint], int] | None] = [None]
    if job.is_rank0:
        rows = job.folder.read_sweep()
        attempt = 1 + max((row.attempt for row in rows), default=-1)
        answer = [({PlannedPoint.of(row) for row in rows}, attempt)]
    dist.broadcast_object_list(answer, src=0, group=job.host_group)
    finished, attempt = answer[0] or (set(), 0)
    return [point for point in planned if point not in finished], attempt


def _rows_of(job: Job[SweepConfig], group: Group) -> Iterator[SweepRow]:
    """Take this rank's part in a group's turn. Yields the group's rows on rank 0, and nothing on other ranks."""
    rows, watchdog, limit_s = RowTransfer(job, group), job.watchdog, job.config.hang_limit_s
    watchdog.arrive(group.first, f"forming the group of ranks {list(group.ranks)}", limit_s)
    watchdog.expect(_FORMING_S)
    with turn(job, group) as member:
        if member is None:
            watchdog.wait(f"waiting for the turn of ranks {list(group.ranks)}")
            if job.is_rank0:
                yield from (rows.receive(number) for number in range(len(group.points)))
            rows.await_finish()
            return
        bench = Bench(job, group, member)
        for number, point in enumerate(group.points):
            watchdog.arrive(group.first + number, str(point), limit_s, group.ranks)
            row = bench.measure(point)
            if row is not None and job.is_rank0:
                yield row
            elif row is not None:
                rows.send(number, row)
        watchdog.wait()
        if member.messages.leads:
            rows.finish()


def _conclude(job: Job[SweepConfig]) -> str | None:
    """Say what the sweep comes to, and write the table that was asked for. Returns why it measured nothing, if so."""
    rows = job.folder.read_sweep()
    print("", *summarise(rows, job.devices), sep="\n", flush=True)
    if job.config.csv is not None:
        write_csv(Path(job.config.csv), rows)
    return why_nothing(rows)


def _give_up(job: Job[SweepConfig], points: list[PlannedPoint], recorder: RowRecorder, reason: AbortReason) -> None:
    """On the way out of a job that hangs: the point that did not return has its row with the reason; on rank 0."""
    if job.is_rank0 and reason.marker is not None and 0 <= reason.marker < len(points):
        recorder.close(points[reason.marker].row(status="failed", reason=reason.message, backend=job.backend))
