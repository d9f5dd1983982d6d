"""The collectives sweep, as each rank of its job runs it.

Every combination of the config's axes is a point, and every point becomes one row: measured, or with the reason
why not. Groups of ranks take turns; within a group the points share one communicator and one block of memory.
Rank 0 writes each row as it comes, so that whatever ends the sweep early loses at most the point at work.
"""

from collections.abc import Iterator

from collectives.bench import Bench
from collectives.config import SweepConfig
from collectives.groups import Rows, turn
from collectives.plan import Group, by_group, plan
from collectives.progress import Display
from launch.job import Job
from records.rows import SweepRow


def run(job: Job[SweepConfig]) -> None:
    """Measure every planned point; rank 0 leaves one row each in the run folder."""
    points = plan(job.config, [device.host for device in job.devices], job.device.type)
    with Display(total=len(points), shown=job.is_rank0) as display:
        for group in by_group(points):
            for row in _rows_of(job, group):
                _keep(job, row)
                display.show(row)


def _rows_of(job: Job[SweepConfig], group: Group) -> Iterator[SweepRow]:
    """Take this rank's part in a group's turn. Yields the group's rows on rank 0, and nothing on other ranks."""
    rows = Rows(job, group)
    with turn(job, group) as member:
        if member is None:
            if job.is_rank0:
                yield from (rows.receive(number) for number in range(len(group.points)))
            rows.await_finish()
            return
        bench = Bench(job, group, member)
        for number, point in enumerate(group.points):
            row = bench.measure(point)
            if row is not None and job.is_rank0:
                yield row
            elif row is not None:
                rows.send(number, row)
        if member.messages.leads:
            rows.finish()


def _keep(job: Job[SweepConfig], row: SweepRow) -> None:
    with job.folder.sweep_writer() as writer:
        writer.append(row)
    job.sinks.log(row)
