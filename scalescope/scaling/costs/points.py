"""What a cost model is fitted on: the plain points of sweeps, and where they were measured."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder, find_runs
from scalescope.records.rows import Device, SweepRow

#: The mean's interval in a row is 1.96 standard errors to either side.
_Z95 = 1.96


class Launch(msgspec.Struct, frozen=True):
    """One launch of a sweep: its rows, and the devices they were measured on."""

    name: str
    rows: list[SweepRow]
    device: str | None = None  # None: an imported log does not tell
    ranks_per_host: int | None = None  # of the fullest host


class Point(msgspec.Struct, frozen=True):
    """One measured time of one collective alone."""

    launch: int
    bytes: int
    group_size: int
    time_us: float
    error: float  # the mean's standard error, as a share of it; 0 where the source does not tell


def launch_of(folder: RunFolder) -> Launch:
    """Return a sweep folder as one launch. Raises UserError where run.json or a row does not decode."""
    devices = folder.read_info().devices
    try:
        rows = folder.read_sweep()
    except msgspec.DecodeError as error:
        raise UserError(str(error)) from error
    return _launch(folder.path.name, rows, devices)


def read_launches(path: Path) -> list[Launch]:
    """Return the launches at a path: a sweep folder, a study, a sweep.jsonl, or a log of nccl-tests or rccl-tests.

    Raises UserError where there are none.
    """
    if path.is_dir():
        launches = [launch_of(run) for run in find_runs(path) if run.sweep.exists()]
    elif path.suffix == ".jsonl":
        folder = RunFolder(path.parent)
        launches = (
            [launch_of(folder)]
            if (path.parent / "run.json").is_file()
            else [Launch(path.parent.name, folder.read_sweep())]
        )
    elif path.is_file():
        from scalescope.scaling.sweeps.nccl_tests_log import read_log

        log = read_log(path.read_text(encoding="utf-8", errors="replace"), path.name)
        launches = [_launch(path.name, log.rows, log.devices)]
    else:
        raise UserError(f"{path}: there is no such folder or file")
    launches = [launch for launch in launches if launch.rows]
    if not launches:
        raise UserError(
            f"{path} holds no sweep: there is no sweep.jsonl with rows in it; measure one with: scalescope sweep"
        )
    return launches


def _launch(name: str, rows: list[SweepRow], devices: Sequence[Device]) -> Launch:
    counts = Counter(device.host for device in devices)
    return Launch(name, rows, devices[0].name if devices else None, max(counts.values(), default=None))


def plain_points(
    launches: Sequence[Launch], operation: str, dtype: str, *, across_hosts: bool | None = None
) -> list[Point]:
    """Return the points of an operation as training calls it: eager, undisturbed, the library left to choose.

    Through torch.distributed where a (launch, group) has that, else through the library itself; in place where there
    are both modes. `across_hosts`: only groups that one host holds (False), or that none does (True).
    """
    points = []
    for at, launch in enumerate(launches):
        kept: dict[tuple[int, int], SweepRow] = {}
        for row in launch.rows:
            if across_hosts is not None and across_hosts != spans_hosts(launch, row.group_size):
                continue
            if row.operation == operation and row.dtype == dtype and is_plain(row):
                key = (row.group_size, row.bytes)
                if key not in kept or _rank(row) < _rank(kept[key]):
                    kept[key] = row
        for row in kept.values():
            assert row.time_us is not None
            spread = row.interval_us[1] - row.interval_us[0] if row.interval_us else 0.0
            points.append(Point(at, row.bytes, row.group_size, row.time_us, spread / 2 / _Z95 / row.time_us))
    return points


def spans_hosts(launch: Launch, group_size: int) -> bool:
    """Tell whether a group of this size takes more than one of the launch's hosts; not where they are not told."""
    return launch.ranks_per_host is not None and group_size > launch.ranks_per_host


#: Ways that torch.distributed does not go: MPI's library, and programs that XLA compiled, without dispatch.
_NOT_TORCHS = ("mpi", "xla")


def is_plain(row: SweepRow) -> bool:
    """Tell whether a row is a collective alone, as training calls it unless told a CTA policy, on packed ranks."""
    return row.cta_policy is None and is_alone(row)


def is_alone(row: SweepRow) -> bool:
    """Tell whether a row is a collective alone, as training calls it under whatever CTA policy, on packed ranks."""
    settings = (row.algorithm, row.protocol, row.channels, row.contention)
    return (
        row.status == "measured"
        and bool(row.time_us)
        and row.execution == "eager"
        and row.transport not in _NOT_TORCHS
        and row.placement in (None, "packed")
        and all(value is None for value in settings)
    )


def _rank(row: SweepRow) -> tuple[bool, bool]:
    return (row.transport != "c10d", row.mode != "in_place")
