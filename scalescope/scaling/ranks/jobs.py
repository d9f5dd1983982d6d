"""Which trace files are of one job: a folder may hold several, and their ranks must not be joined.

Two ranks are of different jobs where something contradicts that they are of one: both have the same rank; their headers
name another world size or another backend; one's device is NVIDIA's and the other's AMD's; their windows lie apart in
time; or they compute different things. Names of files are people's own choice: they only decide where a rank would fit
into several jobs. A file joins the first job that nothing contradicts.

Windows of one job are not to be joined either, where one rank's file is of another window than the other's: on one host
they share no time at all, though they exchange data; on several, whose clocks may differ, or without absolute times,
they have no step and no collective in common besides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from scalescope.records.operations import PAIRWISE
from scalescope.scaling.answer import StepSource
from scalescope.scaling.ranks.summary import RankReading, RankSummary
from scalescope.scaling.trace.sources import Source

#: Ranks of one job are profiled in the same steps, on clocks of several hosts that differ by less than this.
_APART_NS = 10_000_000_000
#: Absolute times are ns since 1970; a header without its base leaves small ones, which compare with nothing.
_ABSOLUTE_NS = 10**18
#: What tells steps by a number that is the same on all ranks.
_NUMBERED: tuple[StepSource, ...] = ("profiler", "step_annotation")
#: The share of the work that is in kernels of the same names. Two ranks of a GPT under DDP have 0.99, an
#: eager and a compiled one 0.69, a GPT and a ResNet-50 0.02.
_SAME_WORK = 0.15
#: Fewer kernels than this tell nothing of what a rank computes.
_TELLING_KERNELS = 20


@dataclass(frozen=True)
class FoundJob:
    """The files of one job: each with the rank it is of."""

    ranks: dict[int, RankReading]
    sources: tuple[Source, ...]
    is_window: bool = False  # it may well be the same job as the others', in steps that they do not hold


class _File:
    """A file and what was read of it, with what tells it from others: worked out once, whatever it is laid beside."""

    def __init__(self, source: Source, reading: RankReading) -> None:
        self.source = source
        self.reading = reading
        self.summary = reading.summary
        self.rank = rank_of(source, reading.summary)
        self.vendor = _vendor(reading.summary.device)
        windows = reading.summary.shares.windows if reading.summary.shares is not None else None
        self.span = (int(windows.edges[0]), int(windows.edges[-1])) if windows is not None else None
        self.numbers = set(windows.numbers) if windows is not None else set()

    @cached_property
    def sequences(self) -> dict[tuple[str, tuple[int, ...]], set[int]]:
        """The numbers of its collectives by their group and its ranks; pairs of ranks count for themselves."""
        found: dict[tuple[str, tuple[int, ...]], set[int]] = {}
        for one in self.summary.collectives:
            if one.sequence is not None and one.group is not None and one.operation not in PAIRWISE:
                found.setdefault((one.group, one.group_ranks), set()).add(one.sequence)
        return found

    @cached_property
    def work(self) -> dict[str, float]:
        """Of each kernel the share of the rank's compute time, largest first; on CPUs of its operators, by number.

        An operator during which the core was another process's takes any time, and may be most of a short window.
        """
        found: dict[str, float] = {}
        for (name, _), kernel in self.summary.kernels.items():
            found[name] = found.get(name, 0.0) + (kernel.steps if self.summary.activity == "cpu" else kernel.total_ns)
        total = sum(found.values()) or 1.0
        return dict(sorted(((name, share / total) for name, share in found.items()), key=lambda one: -one[1]))


def split_jobs(read: Sequence[tuple[Source, RankReading]]) -> list[FoundJob]:
    """Return the jobs that files are of, in the order of their first files; ranks ascend within each.

    A rank is what the header says, else the file's name, else the next that is free, in the order of the names.
    """
    found: list[list[_File]] = []
    for one in [_File(source, reading) for source, reading in read]:
        fitting = [job for job in found if all(_may_be_one_job(one, member) for member in job)]
        alike = [job for job in fitting if job[0].source.prefix == one.source.prefix]
        chosen = next(iter(alike or fitting), None)
        if chosen is None:
            found.append([one])
        else:
            chosen.append(one)
    windows = len(found) > 1 and all(
        not _are_two_jobs(one, other)
        for at, members in enumerate(found)
        for one in members
        for others in found[at + 1 :]
        for other in others
    )
    return [FoundJob(_by_rank(members), tuple(one.source for one in members), windows) for members in found]


def rank_of(source: Source, summary: RankSummary) -> int | None:
    """Return which rank a file is of, as its header says, else its name; None where neither does."""
    return summary.rank if summary.rank is not None else source.rank


def _may_be_one_job(one: _File, other: _File) -> bool:
    return not _are_two_jobs(one, other) and not _lie_apart(one, other)


def _are_two_jobs(one: _File, other: _File) -> bool:
    left, right = one.summary, other.summary
    return (
        (one.rank is not None and one.rank == other.rank)
        or _differ(left.world_size, right.world_size)
        or _differ(left.backend or None, right.backend or None)
        or _differ(one.vendor, other.vendor)
        or _compute_different_things(one, other)
    )


def _differ(left: object, right: object) -> bool:
    return left is not None and right is not None and left != right


def _vendor(device: str | None) -> str | None:
    if device is None:
        return None
    lowered = device.lower()
    known = {"nvidia": "nvidia", "tesla": "nvidia", "geforce": "nvidia", "amd": "amd", "radeon": "amd", "gfx": "amd",
             "instinct": "amd"}  # fmt: skip
    return next((vendor for word, vendor in known.items() if word in lowered), None)


def _lie_apart(one: _File, other: _File) -> bool:
    left, right = one.summary, other.summary
    if one.span is None or other.span is None or left.timeless or right.timeless:
        return False
    if min(one.span[0], other.span[0]) < _ABSOLUTE_NS:
        return _share_no_step(one, other)
    (first_start, first_end), (second_start, _) = sorted((one.span, other.span))
    gap = second_start - max(first_start, first_end)
    # ranks that exchange nothing keep no step with each other, and may do the same ones one after another
    in_step = bool(left.host) and left.host == right.host and bool(left.collectives) and bool(right.collectives)
    return gap > _APART_NS or (gap > 0 and (in_step or _share_no_step(one, other)))


def _share_no_step(one: _File, other: _File) -> bool:
    """Tell whether two ranks' windows have numbered steps, or collectives of a group of both, and none in common."""
    numbered = all(file.summary.evidence.steps in _NUMBERED for file in (one, other))
    if numbered and one.numbers and other.numbers and not one.numbers & other.numbers:
        return True
    shared = one.sequences.keys() & other.sequences.keys()
    return bool(shared) and all(not one.sequences[group] & other.sequences[group] for group in shared)


def _compute_different_things(one: _File, other: _File) -> bool:
    if one.summary.activity != other.summary.activity:
        return False  # of a job on devices, one trace may hold the host alone
    if one.summary.timeless or other.summary.timeless:
        return False
    if len(one.work) < _TELLING_KERNELS or len(other.work) < _TELLING_KERNELS:
        return False
    common = 0.0
    for name, share in one.work.items():
        common += min(share, other.work.get(name, 0.0))
        if common >= _SAME_WORK:  # of ranks of one job, after a kernel or two
            return False
    return True


def _by_rank(members: Sequence[_File]) -> dict[int, RankReading]:
    found: dict[int, RankReading] = {}
    nameless = []
    for one in members:
        if one.rank is None:
            nameless.append(one.reading)
        else:
            found[one.rank] = one.reading
    for reading in nameless:
        found[next(rank for rank in range(len(found) + 1) if rank not in found)] = reading
    return dict(sorted(found.items()))
