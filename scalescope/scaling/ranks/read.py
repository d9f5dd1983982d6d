"""Reads all ranks of a job, one task a rank, and tells which summary is of which rank."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial

import msgspec
import numpy.ma  # noqa: F401 - np.unique and np.median load it when first called: once here, not in each process

from scalescope.records.environment import usable_cores
from scalescope.records.errors import UserError
from scalescope.scaling.answer import Mixed, SharedSteps
from scalescope.scaling.evidence.pace.slowed import Quiet, quiet_steps
from scalescope.scaling.rank.collective import share_members
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.ranks.jobs import FoundJob, copies, split_jobs
from scalescope.scaling.ranks.processes import map_in_processes
from scalescope.scaling.ranks.steps.common import beyond, common_steps, name_collectives, said_of_common
from scalescope.scaling.ranks.summary import RankReading, RankSummary, read_rank
from scalescope.scaling.trace.sources import Source

#: Below this much text, reading in this process is faster than starting others.
_PARALLEL_BYTES = 24 << 20
#: What gzip makes of a trace, roughly.
_GZIP_RATIO = 15


class Refused(msgspec.Struct, frozen=True):
    """A file that could not be read as a trace, and why. A stranger's name promised none: it is passed over."""

    name: str
    reason: str
    stranger: bool
    rank: int | None = None  # by its name


class Ranks(msgspec.Struct, frozen=True):
    """The ranks of one job: their summaries, ascending by rank, and which files beside them are no traces."""

    summaries: dict[int, RankSummary]
    refused: list[Refused]
    records: dict[int, RankRecord]  # what a replay needs of the same ranks, where that was asked for
    files: list[str]  # the names of the files that are of this job
    mixed: Mixed | None = None  # with what else they lie in one folder
    common: SharedSteps | None = None  # the steps that they are of, where some hold others, too
    quiet: Quiet | None = None  # the steps that they are of, where hosts were slowed in others

    @property
    def reasons(self) -> list[str]:
        """In words, what was not read, or is left out."""
        beyond_common = [said_of_common(self.common)] if self.common is not None else []
        return [*(one.reason for one in self.refused if not one.stranger), *beyond_common]

    @property
    def asides(self) -> list[str]:
        """In words, what lies beside the traces and is none: the last that a reader needs to know of them."""
        strangers = [one.name for one in self.refused if one.stranger]
        return [f"left aside, as no trace of any rank: {_some(strangers)}"] if strangers else []


def read_ranks(
    sources: Sequence[Source],
    jobs: int | None = None,
    executor: Executor | None = None,
    *,
    for_replay: bool = False,
    every_step: bool = False,
) -> Ranks:
    """Read the traces of one job; see `read_jobs`. Raises UserError, too, where they are of several jobs."""
    found = read_jobs(sources, jobs, executor, for_replay=for_replay, every_step=every_step)
    if len(found) > 1:
        parts = "; ".join(_some(one.files) for one in found)
        if found[0].mixed is not None and found[0].mixed.kind == "windows":
            raise UserError(f"these are traces of {len(found)} windows that have no step in common ({parts}): "
                            "give those of one window, all its ranks")  # fmt: skip
        raise UserError(f"these are the traces of {len(found)} jobs ({parts}): give the traces of one job only")
    return found[0]


def read_jobs(
    sources: Sequence[Source],
    jobs: int | None = None,
    executor: Executor | None = None,
    *,
    for_replay: bool = False,
    every_step: bool = False,
) -> list[Ranks]:
    """Read the traces and return their summaries by rank, a job each (see jobs.py).

    `for_replay`: with what a replay needs, for a few ranks. `every_step`: those, too, that other ranks do not hold, and
    those in which something outside of the job slows its hosts. What is no trace is said with the first job. Raises
    UserError where no file is a trace; RunError where a reading process was killed.
    """
    read = _read(sources, jobs, executor, for_replay)
    refused = [
        Refused(source.path.name, one, not source.looks_like_a_trace, source.rank)
        for source, one in zip(sources, read, strict=True)
        if isinstance(one, str)
    ]
    if len(refused) == len(read):
        raise UserError(refused[0].reason)
    pairs = [(source, one) for source, one in zip(sources, read, strict=True) if not isinstance(one, str)]
    share_members(one.summary.collectives for _, one in pairs)
    twice = copies(pairs)
    refused += [Refused(name, f"{name} is {first} once more and counts once", False) for name, first in twice.items()]
    found = split_jobs([(source, one) for source, one in pairs if source.path.name not in twice])
    common: list[SharedSteps | None] = [None] * len(found)
    quiet: list[Quiet | None] = [None] * len(found)
    if not every_step:
        again = partial(_read, jobs=jobs, executor=executor, for_replay=for_replay)
        for number, job in enumerate(found):
            found[number], common[number] = _of_common_steps(job, again)
            found[number], quiet[number] = _of_quiet_steps(found[number], again)
    for job in found:
        name_collectives({rank: one.summary for rank, one in job.ranks.items()})
    return [
        Ranks(
            {rank: one.summary for rank, one in job.ranks.items()},
            refused if number == 1 else [],
            {rank: one.record for rank, one in job.ranks.items() if one.record is not None},
            _names(job),
            _mixed(found, number) if len(found) > 1 else None,
            common[number - 1],
            quiet[number - 1],
        )
        for number, job in enumerate(found, 1)
    ]


def _of_common_steps(
    job: FoundJob, read: Callable[..., list[RankReading | str]]
) -> tuple[FoundJob, SharedSteps | None]:
    """Return a job over the steps that all its ranks hold, and which they are; as it is where all hold the same."""
    common = common_steps({rank: one.summary for rank, one in job.ranks.items()})
    if common is None:
        return job, None
    again = _read_again(job, beyond(common), (common.first, common.last), read)
    return (job, None) if again is None else (again, common)


def _of_quiet_steps(job: FoundJob, read: Callable[..., list[RankReading | str]]) -> tuple[FoundJob, Quiet | None]:
    """Return a job over the steps in which nothing slows its hosts, and which they are; where none is, as it is."""
    quiet = quiet_steps({rank: one.summary.host_evidence for rank, one in job.ranks.items()})
    if quiet is None:
        return job, None
    again = _read_again(job, list(job.ranks), (quiet.first, quiet.last), read)
    return (job, None) if again is None else (again, quiet)


def _read_again(
    job: FoundJob, ranks: Sequence[int], only: tuple[int, int], read: Callable[..., list[RankReading | str]]
) -> FoundJob | None:
    """Return a job of which some ranks are read again, from one step to another; None where a file has gone."""
    sources = {(one.path, one.device): one for one in job.sources}
    summaries = [job.ranks[rank].summary for rank in ranks]
    chosen = [sources[one.path, one.of_file] for one in summaries]
    again = [one for one in read(chosen, only=only) if isinstance(one, RankReading)]
    if len(again) < len(chosen):  # gone or changed meanwhile
        return None
    readings = {**job.ranks, **dict(zip(ranks, again, strict=True))}
    share_members(one.summary.collectives for one in readings.values())
    return msgspec.structs.replace(job, ranks=readings)


def _mixed(found: Sequence[FoundJob], number: int) -> Mixed:
    job = found[number - 1]
    return Mixed(
        kind="windows" if job.is_window else "jobs",
        number=number,
        files=[_names(one) for one in found],
        apart=job.apart or "times",
        apart_s=None if job.apart_ns is None else job.apart_ns / 1e9,
    )


def _names(job: FoundJob) -> list[str]:
    return sorted(source.path.name for source in job.sources)


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}"


def _read(
    sources: Sequence[Source],
    jobs: int | None,
    executor: Executor | None,
    for_replay: bool,
    only: tuple[int, int] | None = None,
) -> list[RankReading | str]:
    read = partial(_reading_or_reason, for_replay, only)
    if executor is not None:
        return list(executor.map(read, sources))
    workers = jobs if jobs is not None else usable_cores()
    paths = [source.path for source in sources]
    text = sum(path.stat().st_size * (_GZIP_RATIO if path.name.endswith(".gz") else 1) for path in paths)
    if jobs is None and text < _PARALLEL_BYTES:
        workers = 1
    return map_in_processes(read, sources, workers, f"read traces of {paths[0].parent}")


def _reading_or_reason(for_replay: bool, only: tuple[int, int] | None, source: Source) -> RankReading | str:
    """Return what a rank's file says, or in words why it is no trace: one bad file must not cost the other ranks."""
    try:
        return read_rank(source.path, source.device, for_replay=for_replay, only=only)
    except UserError as error:
        return str(error)
