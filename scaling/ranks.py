"""Reads all ranks of a job, one task a rank, and tells which summary is of which rank."""

import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import msgspec

from records.environment import usable_cores
from records.errors import RunError, UserError
from scaling.rank import RankSummary, summarise
from scaling.sources import Source

#: Below this much text, reading in this process is faster than starting others.
_PARALLEL_BYTES = 24 << 20
#: What gzip makes of a trace, roughly.
_GZIP_RATIO = 15


class Ranks(msgspec.Struct, frozen=True):
    """The ranks' summaries, ascending by rank, and in words which files are no traces."""

    summaries: dict[int, RankSummary]
    refused: list[str]


def read_ranks(sources: Sequence[Source], jobs: int | None = None, executor: Executor | None = None) -> Ranks:
    """Read the traces and return their summaries by rank.

    Raises UserError where no file is a trace, or two are of one rank; RunError where a reading process was killed.
    """
    read = _read([source.path for source in sources], jobs, executor)
    refused = [one for one in read if isinstance(one, str)]
    if len(refused) == len(read):
        raise UserError(refused[0])
    pairs = zip(sources, read, strict=True)
    return Ranks(_by_rank((source, one) for source, one in pairs if not isinstance(one, str)), refused)


def _read(paths: Sequence[Path], jobs: int | None, executor: Executor | None) -> list[RankSummary | str]:
    if executor is not None:
        return list(executor.map(_summary_or_reason, paths))
    workers = min(len(paths), jobs if jobs is not None else usable_cores())
    text = sum(path.stat().st_size * (_GZIP_RATIO if path.name.endswith(".gz") else 1) for path in paths)
    # a forked process has everything imported already, but must not copy the locks of other threads
    can_fork = sys.platform == "linux" and threading.active_count() == 1
    if workers < 2 or not can_fork or (jobs is None and text < _PARALLEL_BYTES):
        return [_summary_or_reason(path) for path in paths]
    try:
        with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
            return list(pool.map(_summary_or_reason, paths, chunksize=max(1, len(paths) // (workers * 8))))
    except BrokenProcessPool as error:
        raise RunError(
            f"a process that read traces of {paths[0].parent} was killed, perhaps for memory; nothing was written"
        ) from error


def _summary_or_reason(path: Path) -> RankSummary | str:
    """Return a rank's summary, or in words why the file is none: one bad file must not cost the other ranks."""
    try:
        return summarise(path)
    except UserError as error:
        return str(error)


def _by_rank(read: Iterable[tuple[Source, RankSummary]]) -> dict[int, RankSummary]:
    """Return the summaries by rank: as the header says, else the file's name, else the order of the names."""
    found: dict[int, RankSummary] = {}
    nameless = []
    for source, summary in read:
        rank = summary.rank if summary.rank is not None else source.rank
        if rank is None:
            nameless.append(summary)
        elif rank in found:
            raise UserError(
                f"{found[rank].path} and {summary.path} are both of rank {rank}; give the traces of one job only"
            )
        else:
            found[rank] = summary
    for summary in nameless:
        found[next(rank for rank in range(len(found) + 1) if rank not in found)] = summary
    return dict(sorted(found.items()))
