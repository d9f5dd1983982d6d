"""Reads all ranks of a job, one task a rank, and tells which summary is of which rank."""

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import msgspec

from scalescope.records.environment import usable_cores
from scalescope.records.errors import UserError
from scalescope.scaling.rank.record import RankRecord
from scalescope.scaling.ranks.processes import map_in_processes
from scalescope.scaling.ranks.summary import RankReading, RankSummary, read_rank
from scalescope.scaling.trace.sources import Source

#: Below this much text, reading in this process is faster than starting others.
_PARALLEL_BYTES = 24 << 20
#: What gzip makes of a trace, roughly.
_GZIP_RATIO = 15


class Ranks(msgspec.Struct, frozen=True):
    """The ranks' summaries, ascending by rank, and in words which files are no traces."""

    summaries: dict[int, RankSummary]
    refused: list[str]
    records: dict[int, RankRecord]  # what a replay needs of the same ranks, where that was asked for


def read_ranks(
    sources: Sequence[Source], jobs: int | None = None, executor: Executor | None = None, *, for_replay: bool = False
) -> Ranks:
    """Read the traces and return their summaries by rank; `for_replay`: with what a replay needs, for a few ranks.

    Raises UserError where no file is a trace, or two are of one rank; RunError where a reading process was killed.
    """
    read = _read([source.path for source in sources], jobs, executor, for_replay)
    refused = [one for one in read if isinstance(one, str)]
    if len(refused) == len(read):
        raise UserError(refused[0])
    pairs = zip(sources, read, strict=True)
    readings = _by_rank((source, one) for source, one in pairs if not isinstance(one, str))
    return Ranks(
        {rank: one.summary for rank, one in readings.items()},
        refused,
        {rank: one.record for rank, one in readings.items() if one.record is not None},
    )


def _read(
    paths: Sequence[Path], jobs: int | None, executor: Executor | None, for_replay: bool
) -> list[RankReading | str]:
    read = partial(_reading_or_reason, for_replay)
    if executor is not None:
        return list(executor.map(read, paths))
    workers = jobs if jobs is not None else usable_cores()
    text = sum(path.stat().st_size * (_GZIP_RATIO if path.name.endswith(".gz") else 1) for path in paths)
    if jobs is None and text < _PARALLEL_BYTES:
        workers = 1
    return map_in_processes(read, paths, workers, f"read traces of {paths[0].parent}")


def _reading_or_reason(for_replay: bool, path: Path) -> RankReading | str:
    """Return what a rank's file says, or in words why it is no trace: one bad file must not cost the other ranks."""
    try:
        return read_rank(path, for_replay=for_replay)
    except UserError as error:
        return str(error)


def _by_rank(read: Iterable[tuple[Source, RankReading]]) -> dict[int, RankReading]:
    """Return the readings by rank: as the header says, else the file's name, else the order of the names."""
    found: dict[int, RankReading] = {}
    nameless = []
    for source, reading in read:
        rank = reading.summary.rank if reading.summary.rank is not None else source.rank
        if rank is None:
            nameless.append(reading)
        elif rank in found:
            raise UserError(
                f"{found[rank].summary.path} and {reading.summary.path} are both of rank {rank}; "
                "give the traces of one job only"
            )
        else:
            found[rank] = reading
    for reading in nameless:
        found[next(rank for rank in range(len(found) + 1) if rank not in found)] = reading
    return dict(sorted(found.items()))
